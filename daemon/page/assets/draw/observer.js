// Which weir this is: its name at the top and in the title, its version at the bottom.

import { now, subject } from "../state/known.js";
import { byId, put } from "./dom.js";

export function drawObserver(choice) {
  const { report } = subject(choice);
  const about = report?.observer ? report : now.drawn;
  if (!about) return;
  const { name, site, version } = about.observer;
  put(byId("observer"), name);
  put(byId("site"), site ?? "");
  document.title = `${name} – weir`;
  put(byId("version"), `weir ${version}, report ${about.id ?? about.reports?.at(-1) ?? ""}`);
}
