// Makes elements. Text never becomes markup.

const SVG = "http://www.w3.org/2000/svg";

function make(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, attributes, ...children) => make(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => make(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);

// Replaces what an element has, unless it would be the same text.
export function put(element, ...children) {
  const only = children.length === 1 ? children[0] : undefined;
  if (typeof only === "string") {
    if (element.textContent !== only || element.firstElementChild) element.textContent = only;
  } else {
    element.replaceChildren(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  }
  return element;
}

// A number: as text for people, and raw in `data-value` for whoever compares it with the report.
export const number = (value, text, attributes) => h("span", { class: "num", "data-value": value, ...attributes }, text);

// An estimate with its bounds.
export function estimate(of, text) {
  return number(of.value, text, { "data-lower": of.lower, "data-upper": of.upper });
}
