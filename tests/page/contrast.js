// Every text on the page whose contrast to its ground is less than WCAG 2.1 asks for (1.4.3, AA): 4.5, or 3 if it is
// large.
(() => {
  const UNSEEN = ["SCRIPT", "STYLE", "NOSCRIPT", "TITLE", "title"];
  const parse = (text) => {
    const numbers = text.match(/[\d.]+(e-?\d+)?/g)?.map(Number) ?? [0, 0, 0, 0];
    const isPart = text.startsWith("color(");
    const [r, g, b, a = 1] = isPart ? [...numbers.slice(-4, -1).map((part) => part * 255), numbers.at(-1)] : numbers;
    return { r, g, b, a };
  };
  const over = (top, below) => ({
    r: top.r * top.a + below.r * (1 - top.a),
    g: top.g * top.a + below.g * (1 - top.a),
    b: top.b * top.a + below.b * (1 - top.a),
    a: 1,
  });
  // What is behind an element: the backgrounds of all around it.
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const layer = parse(getComputedStyle(at).backgroundColor);
      if (layer.a > 0) layers.push(layer);
      if (layer.a === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), { r: 255, g: 255, b: 255, a: 1 });
  };
  const light = ({ r, g, b }) => {
    const part = (value) => {
      const of = value / 255;
      return of <= 0.04045 ? of / 12.92 : ((of + 0.055) / 1.055) ** 2.4;
    };
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const isShown = (element) => {
    const box = element.getBoundingClientRect();
    return box.width > 1 && box.height > 1 && element.checkVisibility({ visibilityProperty: true });
  };
  const texts = document.createTreeWalker(
    document.querySelector("dialog[open]") ?? document.body,
    NodeFilter.SHOW_TEXT,
  );
  const found = { count: 0, poor: [] };
  while (texts.nextNode()) {
    const text = texts.currentNode.textContent.trim();
    const element = texts.currentNode.parentElement;
    if (!text || !isShown(element) || UNSEEN.includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const behind = ground(element);
    const paint = element instanceof SVGElement ? style.fill : style.color;
    let opacity = 1;
    for (let at = element; at; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
    const own = parse(paint);
    const [one, other] = [light(over({ ...own, a: own.a * opacity }, behind)), light(behind)].sort((a, b) => b - a);
    const contrast = (one + 0.05) / (other + 0.05);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    found.count += 1;
    if (contrast >= (isLarge ? 3 : 4.5)) continue;
    const name = `${element.tagName}.${element.getAttribute("class") ?? ""}`;
    found.poor.push(`${contrast.toFixed(2)} ${paint} "${text.slice(0, 40)}" in ${name}`);
  }
  for (const field of document.querySelectorAll("input, select")) {
    if (!isShown(field)) continue;
    const behind = ground(field);
    const style = getComputedStyle(field, field.placeholder ? "::placeholder" : null);
    const [one, other] = [light(over(parse(style.color), behind)), light(behind)].sort((a, b) => b - a);
    found.count += 1;
    if ((one + 0.05) / (other + 0.05) < 4.5) found.poor.push(`${field.id || field.name}: ${style.color}`);
  }
  return found;
})();
