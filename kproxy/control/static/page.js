"use strict";
// Asks for the facts every two seconds and writes them into the page; all text goes in as text, never as HTML.

const INTERVAL_MS = 2000;
const PATIENCE_MS = 10000;
// Reading the fleet costs requests at the brokers.
const FLEET_MS = 30000;
const SVG = "http://www.w3.org/2000/svg";
const REASONS = {
  off: "To abort from here, give kproxy a control.token.file. Or use: kproxy txn abort ID --owner OWNER",
  remote: "Aborts go over loopback only, because the token travels in plain text. On kproxy's host use: kproxy txn abort ID --owner OWNER",
};
// Producer ids have 64 bits, numbers of JavaScript 53.
const LONG_IDS = /"producer_id":(\d{16,})/g;
const ANONYMOUS = "User:ANONYMOUS";
const ability = document.body.dataset.abort;
const byId = (id) => document.getElementById(id);

// -- words

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

function size(bytes) {
  let unit = 0;
  while (bytes >= 1000 && unit < 3) {
    bytes /= 1000;
    unit += 1;
  }
  return `${short.format(bytes)} ${["B", "kB", "MB", "GB"][unit]}`;
}

function span(ms) {
  if (ms < 1000) return `${ms} ms`;
  let seconds = Math.floor(ms / 1000);
  const words = [];
  for (const [length, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
    const count = Math.floor(seconds / length);
    seconds -= count * length;
    if (count && words.length < 2) words.push(`${count} ${unit}`);
  }
  return words.join(" ");
}

const moment = (ms) => new Date(ms).toLocaleTimeString("en-GB");
const since = (ms, now) => `since ${now - ms < 86_400_000 ? moment(ms) : `${new Date(ms).toLocaleDateString("en-GB")} ${moment(ms)}`} (${span(Math.max(now - ms, 0))})`;
const failure = (row) => (row.last_error ? `${row.last_error.reason}, ${moment(row.last_error.at_ms)}` : "");

/** How long ago, as precisely as it is known: the counters are sampled every two seconds. */
function ago(ms, now) {
  if (!ms) return "not known";
  return now - ms < 2 * INTERVAL_MS ? "now" : `${span(now - ms)} ago`;
}

// -- tables

const clientKey = (id, software) => `${id} ${software}`;
let refused = new Set();

// Each column: its title, what it shows of a row, the class of its cells (a word, or what a row says), what it is sorted by.
const COLUMNS = {
  legacy: [
    ["client.id", (row) => row.client_id || "(none)"],
    ["Last seen", (row, now) => (row.connections ? ago(row.last_seen_ms, now) : `${ago(row.last_seen_ms, now)}, has left`), "",
      (row) => row.last_seen_ms],
    ["Uses what Kafka 4 removed", (row) => row.removed.join(", "), "wide"],
    ["Software", (row) => row.software || "not reported"],
    ["Requests", (row) => whole.format(row.requests), "number", (row) => row.requests],
    ["Connections", (row) => whole.format(row.connections), "number", (row) => row.connections],
  ],
  clients: [
    ["client.id", (row) => row.client_id || "(none)"],
    ["Kafka 4", (row) => (refused.has(clientKey(row.client_id, row.software_name)) ? "refuses it" : "accepts it"),
      (row) => (refused.has(clientKey(row.client_id, row.software_name)) ? "mark" : "")],
    ["Software", (row) => `${row.software_name} ${row.software_version}`.trim() || "not reported"],
    ["From", (row) => (row.principal === ANONYMOUS ? row.host : `${row.host}, ${row.principal}`)],
    ["Connections", (row) => whole.format(row.connections), "number", (row) => row.connections],
    ["Requests/s", (row) => whole.format(row.per_second.requests), "number", (row) => row.per_second.requests],
    ["In/s", (row) => size(row.per_second.bytes_in), "number", (row) => row.per_second.bytes_in],
    ["Out/s", (row) => size(row.per_second.bytes_out), "number", (row) => row.per_second.bytes_out],
    ["Versions used last", (row) => Object.entries(row.versions).map(([api, v]) => `${api} v${v}`).join(", "), "wide"],
    ["Last error", failure, "wide", (row) => (row.last_error ? row.last_error.at_ms : 0)],
  ],
  transactions: [
    ["Transactional id", (row) => row.transactional_id],
    ["client.id", (row) => row.client_id],
    ["Producer", (row) => `${row.producer_id}, epoch ${row.producer_epoch}`],
    ["State", (row) => (row.undecided_parts ? `${row.state}, undecided parts: ${row.undecided_parts}` : row.state)],
    ["Open for", (row, now) => (row.started_ms === null ? "" : span(Math.max(now - row.started_ms, 0))), "number",
      (row) => -row.started_ms],
    ["Instance", (row) => row.instance_id],
  ],
  lanes: [
    ["Producer id", (row) => (row.producer_id === null ? "–" : String(row.producer_id))],
    ["Epoch", (row) => (row.epoch === null ? "–" : row.epoch), "number", (row) => row.epoch],
    ["State", (row) => row.state],
    ["client.id", (row) => row.client_id],
    ["Host", (row) => row.host],
    ["Partitions", (row) => whole.format(row.partitions), "number", (row) => row.partitions],
    ["In flight", (row) => whole.format(row.in_flight), "number", (row) => row.in_flight],
    ["Unacknowledged", (row) => (row.unacknowledged_ms ? span(row.unacknowledged_ms) : "–"), "number",
      (row) => row.unacknowledged_ms],
    ["In doubt", (row) => whole.format(row.in_doubt), "number", (row) => row.in_doubt],
  ],
  brokers: [
    ["Broker", (row) => row.node_id, "", (row) => row.node_id],
    ["Address", (row) => row.address],
    ["State", (row, now) => (row.up ? "up" : `down ${since(row.down.since_ms, now)}: ${row.down.reason}; ${row.down.next}`),
      (row) => (row.up ? "" : "wide warn")],
    ["Like Kafka", (row) => row.release || "not asked yet"],
    ["Rack", (row) => row.rack || "–"],
    ["Port here", (row) => (row.port === null ? "none" : row.port), "number", (row) => row.port],
    ["Connections", (row) => whole.format(row.connections), "number", (row) => row.connections],
    ["Errors", (row) => whole.format(row.errors), "number", (row) => row.errors],
    ["Last error", failure, "wide", (row) => (row.last_error ? row.last_error.at_ms : 0)],
  ],
  fleet: [
    ["Instance", (row) => row.instance_id],
    ["State", (row) => row.problems.join("; ") || "well", (row) => (row.problems?.length ? "wide warn" : "wide")],
    ["Announced", (row, now) => `${span(Math.max(now - row.announced_ms, 0))} ago`, "number", (row) => row.announced_ms],
    ["Version", (row) => (row.old ? `${row.version}, old` : row.version), (row) => (row.old ? "mark" : "")],
    ["Host", (row) => row.host],
    ["Clients at", (row) => row.listen],
    ["Page", (row) => row.http || "none"],
    ["Connections", (row) => whole.format(row.connections), "number", (row) => row.connections],
    ["Kafka 4 refuses", (row) => whole.format(row.legacy_total), "number", (row) => row.legacy_total],
    ["Running for", (row, now) => span(Math.max(now - row.started_ms, 0)), "number", (row) => -row.started_ms],
  ],
  errors: [
    ["When", (row) => moment(row.at_ms), "", (row) => row.at_ms],
    ["client.id", (row) => row.client_id],
    ["Host", (row) => row.host],
    ["What", (row) => row.reason, "wide"],
  ],
};
const TIPS = {
  "Kafka 4": "Whether this client has sent requests that Kafka 4 removed (KIP-896)",
  "Software": "As its ApiVersions request reported (KIP-511); older clients report none",
  "Unacknowledged": "Age of its oldest batch without an outcome",
  "In doubt": "Batches whose client may not have received the response",
  "Like Kafka": "The release that the broker's versions are most like",
  "Port here": "The port of kproxy that leads to this broker",
};
const words = new Intl.Collator("en", { numeric: true });
// By table: the rows last received, and the column and direction that people chose.
const held = {};
const order = {};

function cell(kind, text, name) {
  const found = document.createElement(kind);
  found.textContent = text;
  if (name) found.className = name;
  return found;
}

// The head is built once: it has the focus while people sort.
function head(id, more) {
  const line = document.createElement("tr");
  COLUMNS[id].forEach(([title, , name], at) => {
    const th = cell("th", "", typeof name === "function" ? name({}) : name);
    th.classList.remove("warn", "mark");
    th.scope = "col";
    if (TIPS[title]) th.title = TIPS[title];
    const button = cell("button", title);
    button.type = "button";
    button.addEventListener("click", () => sort(id, at));
    th.append(button);
    line.append(th);
  });
  if (more) line.append(cell("td", ""));
  const thead = document.createElement("thead");
  thead.append(line);
  byId(id).replaceChildren(thead, document.createElement("tbody"));
}

function sort(id, at) {
  const was = order[id];
  order[id] = { at, down: was && was.at === at ? !was.down : Boolean(COLUMNS[id][at][3]) };
  [...byId(id).tHead.rows[0].cells].forEach((th, index) => {
    if (index === at) th.setAttribute("aria-sort", order[id].down ? "descending" : "ascending");
    else th.removeAttribute("aria-sort");
  });
  write(id);
}

function sorted(id, rows, now) {
  if (!order[id]) return rows;
  const { at, down } = order[id];
  const [, show, , key] = COLUMNS[id][at];
  const compare = key ? (a, b) => key(a) - key(b) : (a, b) => words.compare(show(a, now), show(b, now));
  return [...rows].sort((a, b) => (down ? compare(b, a) : compare(a, b)));
}

function fill(id, rows, total, now, more) {
  if (!byId(id).tHead) head(id, more);
  held[id] = { rows, total, now, more };
  write(id);
}

function write(id) {
  const { rows, total, now, more } = held[id];
  const columns = COLUMNS[id];
  const filter = document.querySelector(`[data-filter="${id}"]`);
  const wanted = filter ? filter.value.trim().toLowerCase() : "";
  const body = [];
  for (const row of sorted(id, rows, now)) {
    const texts = columns.map(([, show]) => String(show(row, now)));
    if (wanted && !texts.join("\n").toLowerCase().includes(wanted)) continue;
    const line = document.createElement("tr");
    columns.forEach(([, , name], at) => line.append(cell("td", texts[at], typeof name === "function" ? name(row) : name)));
    if (more) line.append(more(row));
    if (id === "legacy" && !row.connections) line.className = "left";
    body.push(line);
  }
  const over = total - rows.length;
  if (!body.length || over > 0) {
    const line = document.createElement("tr");
    const only = cell("td", body.length ? `and ${whole.format(over)} more` : wanted && rows.length ? "none like this" : "none", "none");
    only.colSpan = columns.length + (more ? 1 : 0);
    line.append(only);
    body.push(line);
  }
  byId(id).tBodies[0].replaceChildren(...body);
}

for (const input of document.querySelectorAll("[data-filter]")) {
  input.addEventListener("input", () => held[input.dataset.filter] && write(input.dataset.filter));
}

// -- figures

/** A line over the last three minutes, from 0 to its maximum; both are written beside it. */
function draw(id, values, unit) {
  const width = 90;
  const top = Math.max(...values, 0);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} 30`);
  svg.setAttribute("preserveAspectRatio", "none");
  const first = width - values.length;
  const points = values.map((value, at) => `${first + at + 0.5},${(29.5 - (29 * value) / (top || 1)).toFixed(2)}`);
  const line = document.createElementNS(SVG, "polyline");
  line.setAttribute("class", "line");
  line.setAttribute("points", points.join(" "));
  const area = document.createElementNS(SVG, "polygon");
  area.setAttribute("class", "area");
  if (points.length) area.setAttribute("points", `${first + 0.5},30 ${points.join(" ")} ${width - 0.5},30`);
  svg.append(area, line);
  const axis = cell("span", "", "axis");
  axis.append(cell("span", "3 min ago"), cell("span", "now"));
  byId(id).replaceChildren(svg, cell("span", `max ${unit(top)}/s`, "top"), cell("span", "0", "bottom"), axis);
}

/** What is wrong now, since when, and what comes next: the first thing to be seen. */
function health(status) {
  const { troubles, now_ms: now } = status;
  const severe = troubles.filter((row) => row.severe).length;
  const warnings = troubles.length - severe;
  byId("health").className = severe ? "bad" : warnings ? "care" : "good";
  const said = (row) => (row.since_ms === null ? row.what : `${row.what} ${since(row.since_ms, now)}`);
  // One that is alone is the title.
  const alone = severe === 1 ? troubles[0] : null;
  let title = "Nothing is wrong";
  if (alone) title = said(alone).replace(/^./, (letter) => letter.toUpperCase());
  else if (severe) title = `${severe} things are wrong now`;
  else if (warnings) title = `Serving, with ${warnings === 1 ? "a warning" : `${warnings} warnings`}`;
  byId("health-title").textContent = title;
  const brokers = `${status.brokers_up} of ${status.brokers_known} brokers answer`;
  const waits = status.unacknowledged_ms
    ? `the oldest batch without an outcome waits for ${span(status.unacknowledged_ms)}`
    : "no batch waits for an outcome";
  byId("health-note").textContent = `${brokers}; ${waits}`;
  const rows = troubles.map((row) => {
    const item = document.createElement("li");
    if (row !== alone) item.append(cell("strong", said(row)));
    if (row.detail) item.append(cell("span", row.detail));
    return item;
  });
  byId("troubles").replaceChildren(...rows.filter((item) => item.childElementCount));
}

function did(status) {
  const { transactions } = status;
  byId("did-title").textContent = `What kproxy did in ${span(status.now_ms - status.started_ms)}`;
  byId("matched").textContent = whole.format(status.records_matched);
  const untimed = status.records_matched_untimed;
  byId("matched-note").textContent = status.records_matched
    ? `records that clients sent again${untimed ? `, ${whole.format(untimed)} of them without an equal timestamp` : ""}`
    : "no client has sent a record again so far";
  byId("lost-tile").hidden = !status.lost_records;
  byId("lost").textContent = whole.format(status.lost_records);
  byId("commits").textContent = `${whole.format(transactions.commits)} committed`;
  byId("commits-note").textContent =
    `${whole.format(transactions.aborts)} aborted; ${whole.format(transactions.open)} open, ${whole.format(transactions.prepared)} prepared`;
  byId("in-doubt").textContent = `${whole.format(status.in_doubt)} ${status.in_doubt === 1 ? "batch" : "batches"}`;
  byId("in-doubt-note").textContent = status.unacknowledged_ms
    ? `oldest unacknowledged: ${span(status.unacknowledged_ms)}`
    : "nothing unacknowledged";
}

const latency = (ms) => `${short.format(ms)} ms`;

function figures(status) {
  const { per_second: rate, history } = status;
  document.title = `kproxy ${status.instance_id}`;
  byId("instance").textContent = `${status.version} · ${status.instance_id}`;
  const state = byId("state");
  const word = status.ready ? "ready" : "not ready";
  if (state.textContent !== word) state.textContent = word;
  state.className = `pill ${status.ready ? "good" : "bad"}`;
  byId("about").textContent =
    `clients at ${status.listen}, brokers from ${status.bootstrap_servers}, running for ${span(status.now_ms - status.started_ms)}`;
  health(status);
  did(status);
  legacy(status);
  byId("requests").textContent = `${whole.format(rate.requests)}/s`;
  byId("bytes-in").textContent = `${size(rate.bytes_in)}/s`;
  byId("bytes-out").textContent = `${size(rate.bytes_out)}/s`;
  draw("requests-line", history.requests, (top) => whole.format(top));
  draw("bytes-in-line", history.bytes_in, size);
  draw("bytes-out-line", history.bytes_out, size);
  const { produce_p50_ms: half, produce_p99_ms: most } = history;
  byId("latency").textContent = most === null ? "–" : latency(most);
  byId("latency-note").textContent = half === null ? "no Produce in the last 3 min" : `p50 ${latency(half)}, last 3 min`;
  byId("connections").textContent = whole.format(status.connections);
  byId("connections-note").textContent =
    `of at most ${whole.format(status.max_connections)}; buffers hold ${size(status.buffered_bytes)} of ${size(status.buffer_memory)}`;
}

/** Clients that cannot talk to Kafka 4: through kproxy they work, so nothing is wrong now. */
function legacy(status) {
  const count = status.legacy_total;
  const rows = status.legacy_clients;
  const here = rows.filter((row) => row.connections).length;
  refused = new Set(rows.map((row) => clientKey(row.client_id, row.software)));
  byId("legacy-count").textContent = count ? `${whole.format(count)} ${count === 1 ? "client" : "clients"}` : "no client";
  byId("legacy-note").textContent = count
    ? `Kafka 4 would refuse ${count === 1 ? "it" : "them"}; ${whole.format(here)} connected, ${whole.format(count - here)} left`
    : "Kafka 4 accepts all that were here so far";
  byId("legacy-section").hidden = !count;
  fill("legacy", rows, count, status.now_ms);
}

// -- aborts

const dialog = byId("ask");
let token = "";
let asked = null;

function abortCell(row) {
  const found = document.createElement("td");
  const button = cell("button", "Abort");
  button.type = "button";
  button.disabled = ability !== "token";
  button.setAttribute("aria-label", `Abort ${row.transactional_id}`);
  button.addEventListener("click", () => {
    asked = row;
    byId("ask-name").textContent = row.transactional_id;
    byId("ask-error").textContent = "";
    byId("token").value = token;
    dialog.showModal();
  });
  found.append(button);
  return found;
}

async function abort() {
  token = byId("token").value.trim();
  byId("ask-yes").disabled = true;
  try {
    const answer = await fetch(`/v1/transactions/${encodeURIComponent(asked.transactional_id)}/abort`, {
      method: "POST",
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
      // all of it: also what members have prepared, which nobody else may ever decide; but nothing of a newer owner.
      // As text: the producer id may be too long for a number.
      body: `{"owner": {"producer_id": ${asked.producer_id}, "producer_epoch": ${asked.producer_epoch}}, "abort_others": true}`,
    });
    if (answer.ok) {
      dialog.close();
      refresh();
      return;
    }
    if (answer.status === 401) token = "";
    const problem = await answer.json();
    byId("ask-error").textContent = answer.status === 401 ? "That is not the token." : problem.detail;
  } catch (error) {
    byId("ask-error").textContent = `kproxy did not answer: ${error.message}`;
  } finally {
    byId("ask-yes").disabled = false;
  }
}

byId("ask-no").addEventListener("click", () => dialog.close());
byId("ask-form").addEventListener("submit", (event) => {
  event.preventDefault();
  abort();
});
dialog.addEventListener("close", () => {
  byId("token").value = "";
});

// -- asking

const key = byId("key");

/** From other hosts the facts need the token. */
function askForKey() {
  if (key.open || dialog.open) return;
  byId("key-error").textContent = token ? "That is not the token." : "";
  key.showModal();
}

byId("key-form").addEventListener("submit", () => {
  token = byId("key-token").value.trim();
  byId("key-token").value = "";
  refresh();
});

async function get(path) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, signal: AbortSignal.timeout(PATIENCE_MS) });
  if (answer.status === 401) askForKey();
  if (answer.status === 403 || answer.status === 503) throw new Error((await answer.json()).detail);
  if (!answer.ok) throw new Error(`${path} answered ${answer.status}`);
  return JSON.parse((await answer.text()).replace(LONG_IDS, '"producer_id":"$1"'));
}

function age(stale) {
  const known = stale.as_of_ms === null ? "Only those that are open here are known" : `As of ${moment(stale.as_of_ms)}`;
  return `${known}, for the transaction log cannot be read now: ${stale.reason}.`;
}

async function transactions(now) {
  const note = byId("transactions-note");
  // The rows are not made anew under somebody's fingers.
  if (dialog.open) return;
  try {
    const found = await get("/v1/transactions?undecided=true");
    const ways = found.transactions.length ? REASONS[ability] || "" : "";
    note.textContent = [found.stale ? age(found.stale) : "", ways].filter(Boolean).join(" ");
    note.hidden = !note.textContent;
    fill("transactions", found.transactions.slice(0, 200), found.transactions.length, now, abortCell);
  } catch (error) {
    note.hidden = false;
    note.textContent = `Transactions are not known now: ${error.message}`;
    fill("transactions", [], 0, now);
  }
}

let fleetAt = -Infinity;

async function fleet(now) {
  if (performance.now() < fleetAt + FLEET_MS) return;
  fleetAt = performance.now();
  const note = byId("fleet-note");
  try {
    const found = await get("/v1/fleet");
    byId("fleet-section").hidden = !found.total;
    const old = found.old ? `, ${found.old} older than ${found.newest_version}` : "";
    note.textContent = `${found.total} instances, ${found.in_trouble} in trouble${old}.`;
    fill("fleet", found.instances.slice(0, 200), found.total, now);
  } catch (error) {
    note.textContent = "The fleet cannot be read now.";
  }
}

async function refresh() {
  const silent = byId("silent");
  try {
    const [status, clients, lanes, brokers] = await Promise.all(
      ["/v1/status", "/v1/clients", "/v1/lanes", "/v1/brokers"].map(get),
    );
    figures(status);
    fill("clients", clients.clients.slice(0, 200), clients.total, status.now_ms);
    fill("lanes", lanes.lanes.slice(0, 200), lanes.total, status.now_ms);
    fill("brokers", brokers.brokers, brokers.total, status.now_ms);
    fill("errors", status.recent_errors, status.recent_errors.length, status.now_ms);
    fleet(status.now_ms);
    await transactions(status.now_ms);
    silent.hidden = true;
    document.body.classList.remove("old");
    byId("updated").textContent = `as of ${moment(status.now_ms)}, asked every ${INTERVAL_MS / 1000} s`;
  } catch (error) {
    if (silent.hidden) silent.textContent = `No answer since ${moment(Date.now())}: ${error.message}. What is shown may be old.`;
    silent.hidden = false;
    document.body.classList.add("old");
  }
}

async function go() {
  if (document.visibilityState === "visible") await refresh();
  setTimeout(go, INTERVAL_MS);
}

go();
