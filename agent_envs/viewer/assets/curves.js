// Curves of training runs: a small drawing for each measure.
const DRAWN = [["success", "success"], ["reward", "return"], ["turns", "steps"], ["length", "response tokens"]];
function svg(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}
function chart(title, lines) {
  const points = lines.flatMap(({ points }) => points).filter(([, y]) => finite(y));
  const [x0, x1] = [Math.min(...points.map(p => p[0])), Math.max(...points.map(p => p[0]))];
  let [y0, y1] = [Math.min(...points.map(p => p[1])), Math.max(...points.map(p => p[1]))];
  if (title === "success") [y0, y1] = [0, Math.max(y1, 0.05)];
  const X = x => 2 + 96 * (x1 > x0 ? (x - x0) / (x1 - x0) : 0.5), Y = y => 94 - 88 * (y1 > y0 ? (y - y0) / (y1 - y0) : 0.5);
  const figure = el("figure"), drawing = svg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img" }), said = [];
  const caption = el("figcaption", "", `${title}: `);
  lines.forEach(({ name, points: line, kind }) => {
    const good = line.filter(([, y]) => finite(y));
    if (!good.length) return;
    drawing.append(svg("polyline", { points: good.map(([x, y]) => `${X(x).toFixed(2)},${Y(y).toFixed(2)}`).join(" "), class: `line${kind}` }));
    if (good.length === 1) drawing.append(svg("polyline", { points: `${X(good[0][0]) - 2},${Y(good[0][1])} ${X(good[0][0]) + 2},${Y(good[0][1])}`, class: `line${kind}` }));
    const [x, y] = good.at(-1), text = `${name} ${number(y)} at step ${x}`;
    said.push(`${text}, from ${number(good[0][1])}`);
    caption.append(el("span", `line${kind}`, text), " ");
  });
  drawing.setAttribute("aria-label", `${title}: ${said.join("; ")}`);
  caption.append(`(${number(y0)} to ${number(y1)})`);
  figure.append(caption, drawing);
  return figure;
}
// The runs of the list, each with its curves; beyond three, the last three.
function drawCurves(runs) {
  $("charts").hidden = !runs.length;
  const figures = DRAWN.flatMap(([name, title]) => {
    const lines = runs.slice(-3).flatMap(({ run, curves }) => ["training", "held-out"].map((phase, kind) => ({
      name: runs.length > 1 ? `${run}, ${phase}` : phase, kind, points: curves[phase]?.[name] ?? [],
    }))).filter(({ points }) => points.some(([, y]) => finite(y)));
    return lines.length ? [chart(title, lines)] : [];
  });
  $("curves").replaceChildren(...figures);
}
function toggleCurves(on = $("curves").hidden) {
  $("curves").hidden = !on;
  $("charts").setAttribute("aria-pressed", on);
}
