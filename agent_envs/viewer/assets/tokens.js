// Sampled tokens as a heat map, and the rows in which training computes them.
const COLOURS = [["", "no colour"], ["logprob", "log-probability"], ["entropy", "entropy"], ["advantage", "advantage"]];
let colour = "logprob";
const SHOWN = 5000;
const finite = x => typeof x === "number" && Number.isFinite(x);
function measures(step) {
  const of = list => Array.isArray(list) && list.length === step.response_ids.length ? list : null;
  return { logprob: of(step.response_logprobs), entropy: of(step.info.response_entropies), advantage: of(step.info.response_advantages), mask: of(step.info.response_mask) };
}
// The largest size of each measure in an episode, which has the strongest colour.
function scales(e) {
  const most = { logprob: 5, entropy: 0, advantage: 0 };
  for (const step of e.steps) if (step.response_ids) {
    const m = measures(step);
    for (const name of ["entropy", "advantage"]) for (const x of m[name] ?? []) if (finite(x)) most[name] = Math.max(most[name], Math.abs(x));
  }
  return most;
}
function heat(span, value, most) {
  if (!finite(value) || !most) return;
  const share = Math.min(1, Math.abs(value) / most);
  span.classList.add("heat");
  span.style.setProperty("--heat", `${Math.round(60 * share)}%`);
  span.style.setProperty("--tone", colour === "advantage" ? value < 0 ? "var(--down)" : "var(--up)" : "var(--hot)");
}
function tokenText(step, most) {
  const { response_ids: ids, pieces } = step, m = measures(step), pre = el("pre", colour ? "colour" : "");
  ids.slice(0, SHOWN).forEach((id, k) => {
    const untrained = m.mask && !m.mask[k];
    const span = el("span", untrained ? "token untrained" : "token", pieces ? pieces[k] : id + " ");
    if (colour && m[colour]) heat(span, m[colour][k], most[colour]);
    span.title = [`token ${id}`, ...["logprob", "entropy", "advantage"].filter(name => m[name]).map(name => `${COLOURS.find(c => c[0] === name)[1]} ${number(m[name][k])}`), ...untrained ? ["not trained"] : []].join(", ");
    pre.append(span);
  });
  if (ids.length > SHOWN) pre.append(el("span", "", ` ... ${ids.length - SHOWN} more`));
  reachable(pre);
  return pre;
}
function tokenTable(step) {
  const m = measures(step), named = COLOURS.slice(1).filter(([name]) => m[name]), table = el("table", "tokens"), head = el("tr");
  for (const name of ["#", "token", ...step.pieces ? ["text"] : [], ...named.map(c => c[1]), ...m.mask ? ["trained"] : []]) { const th = el("th", "", name); th.scope = "col"; head.append(th); }
  table.append(head);
  step.response_ids.slice(0, 1000).forEach((id, k) => {
    const row = el("tr");
    for (const value of [k, id, ...step.pieces ? [JSON.stringify(step.pieces[k])] : [], ...named.map(([name]) => number(m[name][k])), ...m.mask ? [m.mask[k] ? "yes" : "no"] : []]) row.append(el("td", "", value));
    table.append(row);
  });
  return table;
}
const promptLength = step => step.prompt_ids ? step.prompt_ids.kept + step.prompt_ids.new.length : null;
function tokens(step, most) {
  const mask = measures(step).mask;
  const label = `${promptLength(step) ?? "?"} prompt tokens, ${step.response_ids.length} sampled tokens` + (mask ? `, ${mask.filter(Boolean).length} trained` : "");
  const part = folded(label, () => {
    const box = [tokenText(step, most)];
    if (step.prompt_ids) box.push(folded(`${step.prompt_ids.new.length} prompt tokens that are new here`, () => {
      const pre = el("pre");
      step.prompt_ids.new.slice(0, SHOWN).forEach((id, k) => pre.append(el("span", "token prompt", step.prompt_pieces ? step.prompt_pieces[k] : id + " ")));
      reachable(pre);
      return [pre];
    }));
    box.push(folded("as a table", () => [tokenTable(step)]));
    return box;
  });
  part.classList.add("tokened");
  part.addEventListener("recolour", () => part.querySelector(":scope > pre")?.replaceWith(tokenText(step, most)));
  part.open = Boolean(step.response_ids.length && step.response_ids.length < 400 && (step.pieces || measures(step).logprob));
  return part;
}
function legend(most) {
  const box = el("span", "legend");
  if (!colour) return box;
  const bar = el("i"), two = colour === "advantage";
  bar.style.setProperty("--from", two ? "var(--down)" : "var(--paper)");
  bar.style.setProperty("--middle", two ? "50%" : "0%");
  bar.style.setProperty("--to", two ? "var(--up)" : "var(--hot)");
  const far = number(most[colour]);
  box.append(el("span", "", two ? "-" + far : "0"), bar, el("span", "", colour === "logprob" ? `-${far} or less` : far));
  return box;
}
// The rows of an episode: what is computed once although many steps begin with it.
function rowsPart(e, pane) {
  const having = e.steps.map((step, k) => ({ step, k })).filter(({ step }) => step.row >= 0 && step.prompt_ids);
  if (!having.length) return [];
  const rows = [...Map.groupBy(having, ({ step }) => step.row).values()];
  const apart = having.reduce((n, { step }) => n + promptLength(step) + step.response_ids.length, 0);
  const together = rows.reduce((n, row) => n + promptLength(row.at(-1).step) + row.at(-1).step.response_ids.length, 0);
  const label = `${many(having.length, "step")} in ${many(rows.length, "merged row")}: ${together} tokens instead of ${apart}`;
  return [folded(label, () => rows.flatMap((row, r) => {
    const strip = el("div", "strip"), names = [];
    let end = 0, trained = 0;
    for (const { step, k } of row) {
      const mask = measures(step).mask, given = promptLength(step) - end, size = step.response_ids.length;
      const parts = [[given, "given", `${given} tokens of the ${end ? "environment" : "prompt"}`], [size, mask && !mask.some(Boolean) ? "left" : "written", `step ${k + 1}: ${size} sampled tokens`]];
      for (const [count, kind, about] of parts) if (count > 0) {
        const piece = button("", () => pane.querySelector(`[data-step="${k}"]`)?.scrollIntoView({ block: "start" }), about);
        piece.className = kind;
        piece.setAttribute("aria-label", about);
        piece.style.flexGrow = count;
        strip.append(piece);
      }
      end = promptLength(step) + size;
      trained += mask ? mask.filter(Boolean).length : size;
      names.push(k + 1);
    }
    return [el("div", "label", `row ${r + 1}: ${names.length === 1 ? "step" : "steps"} ${names.join(", ")}; ${end} tokens, ${trained} trained`), strip];
  }))];
}
