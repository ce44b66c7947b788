// Makes elements. Text never becomes markup.

const SVG = "http://www.w3.org/2000/svg";

const shown = (children) =>
  children.flat(2).filter((child) => child !== null && child !== undefined && child !== false);

function make(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...shown(children));
  return element;
}

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any> | null} [attributes]
 * @param {any[]} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export const h = (tag, attributes, ...children) => make(document.createElement(tag), attributes, children);

/**
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any> | null} [attributes]
 * @param {any[]} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export const s = (tag, attributes, ...children) => make(document.createElementNS(SVG, tag), attributes, children);

/** An element of the page's own file. */
export const byId = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** @type {(within: ParentNode, selector: string) => HTMLElement | null} */
export const find = (within, selector) => within.querySelector(selector);

// The element that has the focus.
export const holder = () => /** @type {HTMLElement} */ (document.activeElement ?? document.body);

/** @type {(event: Event) => HTMLElement} */
export const targetOf = (event) => /** @type {HTMLElement} */ (event.target);

/**
 * Replaces what an element has, unless it would be the same text.
 * @param {Element} element
 * @param {any[]} children
 */
export function put(element, ...children) {
  const only = children.length === 1 ? children[0] : undefined;
  if (typeof only === "string") {
    if (element.textContent !== only || element.firstElementChild) element.textContent = only;
  } else {
    element.replaceChildren(...shown(children));
  }
  return element;
}

/**
 * Replaces what an element has if its key changed. The focus stays at the same position.
 * @param {HTMLElement} element
 * @param {string} key
 * @param {() => any} make
 */
export function keep(element, key, make) {
  if (element.dataset.key === key) return;
  element.dataset.key = key;
  const focused = [...element.children].indexOf(holder());
  put(element, make());
  if (focused >= 0) /** @type {HTMLElement | undefined} */ (element.children[focused])?.focus();
}

// A number: as text for people, and raw in `data-value` for whoever compares it with the report.
export const number = (value, text, attributes) =>
  h("span", { class: "num", "data-value": value, ...attributes }, text);

// An estimate with its bounds.
export function estimate(of, text) {
  return number(of.value, text, { "data-lower": of.lower, "data-upper": of.upper });
}

// A way to somewhere else on the page, which may be where the reader is.
export const nav = (text, href, isCurrent, attributes) =>
  h("a", { href, "aria-current": isCurrent ? "true" : null, ...attributes }, text);

export const hint = (...text) => h("p", { class: "hint" }, text);
// The text in place of a part that has nothing to show.
export const nothing = (text) => h("p", { class: "empty" }, text);
// The colour of a part, as its bar has it.
export const swatch = (kind) => h("i", { class: `key ${kind}`, "aria-hidden": "true" });

const MARKS = { good: "✓", bad: "!" };

// A word of the line of trust. What is good or bad has a mark, which is not a colour alone.
export function word(verdict, text, attributes) {
  const mark = MARKS[verdict];
  const kind = verdict ? `word ${verdict}` : "word";
  return h("span", { class: kind, ...attributes }, mark ? h("i", { "aria-hidden": "true" }, mark) : null, text);
}
