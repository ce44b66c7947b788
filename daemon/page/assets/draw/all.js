// Draws the parts of the page.

import { chosen } from "../state/address.js";
import { now } from "../state/known.js";
import { drawCharts } from "./charts.js";
import { drawComparison } from "./compare.js";
import { drawConnection } from "./connection.js";
import { drawDetail } from "./detail.js";
import { drawLists } from "./lists.js";
import { drawNotices } from "./notices.js";
import { drawObserver } from "./observer.js";
import { drawSide } from "./side.js";
import { drawTimes } from "./times.js";
import { drawTrust } from "./trust.js";

let isWaiting = false;

// Draws all of it, once before the next frame.
export function drawAll() {
  if (isWaiting) return;
  isWaiting = true;
  requestAnimationFrame(() => {
    isWaiting = false;
    // All parts begin with a report at once.
    now.drawn = now.last;
    const choice = chosen();
    drawHead(choice);
    drawCharts(choice);
    drawComparison(choice);
    drawLists(choice);
    drawSide(choice);
    drawDetail(choice);
  });
}

// Draws what a change of the choice changes at once, so that no link has an earlier choice.
export function drawChosen() {
  const choice = chosen();
  drawDetail(choice);
  drawHead(choice);
  drawComparison(choice);
  drawLists(choice);
  drawAll();
}

function drawHead(choice) {
  drawObserver(choice);
  drawTimes(choice);
  drawTrustworthiness(choice);
  drawConnection(choice);
}

function drawTrustworthiness(choice) {
  drawNotices(choice);
  drawTrust(choice);
}

// Draws the parts that the open window changes.
export function drawOpen() {
  const choice = chosen();
  drawLists(choice);
  drawSide(choice);
}

// Draws the parts that each second changes.
export function drawSecond() {
  const choice = chosen();
  if (!choice.isSpan) drawCharts(choice);
  drawTrustworthiness(choice);
  drawConnection(choice);
}

// Draws the parts that change with time alone, without a message.
export const drawTime = () => drawTrustworthiness(chosen());

export const drawPast = () => drawCharts(chosen());

export const drawCompared = () => drawComparison(chosen());
