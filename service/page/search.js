// The search page. Text of documents and users enters the page as text nodes only, never as markup.

const PAGE_SIZE = 10;
const READ_K = 5; // as many passages as /v1/answer reads by default
const $ = (id) => document.getElementById(id);
const [form, input, status, fault, list, more, keyForm, forget, main] =
  ["form", "query", "status", "fault", "list", "more", "key-form", "forget"].map($).concat(document.querySelector("main"));
const KEY = "tercet-key"; // in sessionStorage: this tab's, and gone with it
const KEY_MISSING = "/problems/key-missing";
const KEY_PROBLEMS = [KEY_MISSING, "/problems/key-refused", "/problems/scope-missing"];

let running = null; // aborts the requests of the search before
let shown = { query: "", count: 0 };

function element(name, { text, className, ...attributes } = {}, ...children) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Offsets are in code points, and JavaScript counts UTF-16 units: spread the text to slice it.
// Blank lines are left out, to show more of a passage in less room.
function withMarks(text, slices) {
  const points = [...text];
  const piece = (from, to) => points.slice(from, to).join("").replace(/\n\s*\n/g, "\n");
  const nodes = [];
  let done = 0;
  for (const { start, end } of slices) {
    nodes.push(piece(done, start), element("mark", { text: piece(start, end) }));
    done = end;
  }
  nodes.push(piece(done, points.length));
  return nodes;
}

async function call(path, body, signal) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...(body && { "Content-Type": "application/json" }), ...(key && { Authorization: `Bearer ${key}` }) };
  const response = await fetch(path, {
    method: body ? "POST" : "GET",
    headers,
    body: body ? JSON.stringify(body) : undefined,
    signal,
  });
  const content = await response.json().catch(() => null);
  if (response.ok) return content;
  const message = explain(response, content);
  if (KEY_PROBLEMS.includes(content?.type)) askForKey(message);
  throw new Error(message);
}

function askForKey(message) {
  showFault(message);
  keyForm.hidden = false;
  $("metrics").hidden = true;
  $("key").focus();
}

function explain(response, problem) {
  if (!problem) return `The service answered with status ${response.status}.`;
  if (problem.type === KEY_MISSING) return "This service needs an API key.";
  const wait = response.headers.get("Retry-After");
  const details = problem.errors ? problem.errors.map((each) => each.detail) : [problem.detail ?? ""];
  return [`${problem.title}.`, ...details, wait ? `Try again in ${wait} s.` : ""].filter(Boolean).join(" ");
}

function milliseconds(value) {
  return value >= 1000 ? `${(value / 1000).toFixed(1)} s` : `${Math.round(value)} ms`;
}

function title(item) {
  const name = item.title || item.document_id;
  const isLink = /^https?:\/\//i.test(item.url ?? "");
  return isLink ? element("a", { text: name, href: item.url, rel: "noreferrer" }) : name;
}

// The best passages are on the page already: sending them back saves ranking them a second time.
async function answerFrom(query, results, signal) {
  const passages = results.slice(0, READ_K).map(({ text }, i) => ({ id: String(i), text }));
  showAnswer(await call("/v1/answer", { query, top_k: 1, passages }, signal), results);
}

function showAnswer(body, results) {
  const box = $("answer");
  const found = body.answer;
  box.classList.toggle("none", !found);
  $("answer-heading").textContent = found ? "Answer" : "No answer found";
  $("answer-body").replaceChildren(...(found ? answerParts(found, results[Number(found.passage_id)]) : noAnswerParts(body)));
  box.hidden = false;
}

function answerParts(found, result) {
  const start = found.start - found.context_start;
  const marks = [{ start, end: start + (found.end - found.start) }];
  return [
    element("p", { className: "text", text: found.text }),
    element("p", { className: "context" }, ...withMarks(found.context, marks)),
    element("p", { className: "place" }, "From ", title(result), ` · confidence ${Math.round(100 * found.score)}%`),
  ];
}

const REASONS = {
  nothing_retrieved: "No passage matches these words.",
  below_threshold: "The passages below may help, but none of them clearly states an answer.",
  truncated: "The query was too long to be read whole. A shorter one may find an answer.",
};

function noAnswerParts({ no_answer: decision }) {
  return [element("p", { text: REASONS[decision.reason] ?? "None of the passages clearly states an answer." })];
}

const KINDS = { relevance: "relevance", rrf: "fused rank score", bm25: "BM25", dense: "similarity" };

function resultItem(result) {
  const passage = element("p", { className: "passage" }, ...withMarks(result.text, result.highlights));
  const facts = [
    `${KINDS[result.score_kind]} ${result.score_kind === "relevance" ? result.score.toFixed(3) : result.score.toPrecision(3)}`,
    result.scores.bm25 === null || result.score_kind === "bm25" ? "" : `BM25 ${result.scores.bm25.toFixed(1)}`,
    result.scores.dense === null || result.score_kind === "dense" ? "" : `similarity ${result.scores.dense.toFixed(2)}`,
  ].filter(Boolean).map((text) => element("li", { text }));
  if (result.truncated) facts.push(element("li", { className: "warning", text: `${result.cut_tokens} tokens were not read` }));
  const item = element(
    "li", {},
    element("h3", {}, title(result)),
    element("p", { className: "place", text: [result.document_id, result.heading].filter(Boolean).join(" · ") }),
    passage,
    element("ul", { className: "facts" }, ...facts),
  );
  return { item, passage };
}

function addResults(results) {
  for (const result of results) {
    const { item, passage } = resultItem(result);
    list.append(item);
    if (passage.scrollHeight > passage.clientHeight + 4) passage.after(toggle(passage));
  }
}

function toggle(passage) {
  passage.classList.add("long");
  const button = element("button", { className: "toggle", type: "button", text: "Show all", "aria-expanded": "false" });
  button.addEventListener("click", () => {
    const isOpen = passage.classList.toggle("open");
    button.textContent = isOpen ? "Show less" : "Show all";
    button.setAttribute("aria-expanded", String(isOpen));
  });
  return button;
}

function summary(body) {
  const times = body.timings_ms;
  const stages = Object.keys(times).filter((name) => name !== "total").map((name) => `${name} ${milliseconds(times[name])}`);
  const cut = body.query_cut_tokens > 0 ? ` · ${body.query_cut_tokens} tokens of the query did not fit` : "";
  const count = body.n_candidates === 1 ? "1 passage" : `${body.n_candidates} passages`;
  return `${count} in ${milliseconds(times.total)} (${stages.join(", ")})${cut}`;
}

async function showPage(query, signal) {
  const body = await call("/v1/search", { query, top_k: PAGE_SIZE, offset: shown.count }, signal);
  if (shown.count === 0) status.textContent = body.n_candidates ? summary(body) : "Nothing matches these words.";
  $("results").hidden = body.n_candidates === 0;
  addResults(body.results);
  shown.count += body.results.length;
  more.hidden = shown.count >= body.n_candidates || body.results.length === 0;
  return body.results;
}

async function start(query) {
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  shown = { query, count: 0 };
  document.body.classList.add("searched");
  document.title = `${query} · Tercet`;
  for (const part of [fault, $("answer"), $("results"), more]) part.hidden = true;
  list.replaceChildren();
  status.textContent = "Searching…";
  await guarded(signal, async () => {
    await answerFrom(query, await showPage(query, signal), signal);
  });
}

async function guarded(signal, work) {
  main.setAttribute("aria-busy", "true");
  try {
    await work();
  } catch (error) {
    if (signal.aborted) return;
    showFault(error instanceof TypeError ? "The service cannot be reached." : error.message);
    if (shown.count === 0) status.textContent = "";
  } finally {
    if (!signal.aborted) main.removeAttribute("aria-busy");
  }
}

function showFault(message) {
  fault.textContent = message;
  fault.hidden = false;
}

keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, $("key").value.trim());
  $("key").value = "";
  begin();
});

forget.addEventListener("click", () => {
  sessionStorage.removeItem(KEY);
  location.reload(); // what it showed goes too
});

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const query = input.value.trim();
  if (!query) return;
  history.pushState(null, "", `?q=${encodeURIComponent(query)}`);
  start(query);
});

more.addEventListener("click", async () => {
  const before = list.children.length;
  await guarded(running.signal, () => showPage(shown.query, running.signal));
  list.children[before]?.querySelector("a, .toggle")?.focus();
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target instanceof HTMLInputElement) return;
  event.preventDefault();
  input.select();
});

function fromAddress() {
  const query = (new URLSearchParams(location.search).get("q") ?? "").trim();
  input.value = query;
  if (query) start(query);
}

window.addEventListener("popstate", fromAddress);

function begin() {
  const hasKey = sessionStorage.getItem(KEY) !== null;
  fault.hidden = keyForm.hidden = true;
  $("metrics").hidden = hasKey; // a link sends no key
  forget.hidden = !hasKey;
  call("/v1/indexes")
    .then(({ indexes: [index] }) => {
      const number = new Intl.NumberFormat("en");
      $("index").textContent = `${number.format(index.n_documents)} documents in ${number.format(index.n_passages)} passages`;
    })
    .catch((error) => { $("index").textContent = keyForm.hidden ? error.message : ""; });
  fromAddress();
}

begin();
