// The page of the view: asks for the state and the pictures a few times a second and draws them.
// Nothing is asked for while the page is hidden, and one request a source is under way at most.
"use strict";

const PERIOD_MS = 125;
const LOST_MS = 1500;         // no answer for this long: the connection is lost
const STALE_MS = 1500;        // state older than this: the cell does not report any more
const OLD_PICTURE_MS = 700;   // picture older than this: the camera or the cell stands still
const REQUEST_MS = 3000;

const $ = (id) => document.getElementById(id);
const COLOURS = { clear: "#3ddc84", reduce: "#ffb020", stop: "#ff5252" };
const HEALTH = {
  "no-frame": "no frame yet", "empty-colour": "colour image empty", "empty-depth": "depth image empty",
  "impossible-depth": "depths impossible", "wrong-size": "frame of wrong size", "no-pose": "camera pose unknown",
  "inference-failed": "inference failed",
};

const metres = (d) => Number.isFinite(d) ? d.toFixed(2) + " m" : "invalid";
const distance = (d, known) => d === null && !known ? "nobody" : metres(d);
const ms = (t) => Number.isFinite(t) ? t.toFixed(1) + " ms" : "–";
const words = (kebab) => kebab.replaceAll("-", " ");
const whole = (n) => n.toLocaleString("en");

function put(id, text, tone = "") {
  const element = $(id);
  if (element.textContent !== text) element.textContent = text;
  if (element.dataset.tone !== tone) {
    element.classList.remove("good", "warn", "bad");
    if (tone) element.classList.add(tone);
    element.dataset.tone = tone;
  }
}

async function ask(path) {
  return fetch(path, { cache: "no-store", signal: AbortSignal.timeout(REQUEST_MS) });
}

// ---- cameras ----

class Camera {
  constructor(number) {
    this.number = number;
    this.busy = false;
    this.note = null;       // what belongs to the picture shown
    this.bitmap = null;
    this.changedAt = -Infinity;
    this.error = "";
    this.element = document.createElement("figure");
    this.element.className = "card camera";
    this.element.innerHTML =
      '<div class="picture"><canvas></canvas><div class="notice"></div></div><figcaption><b></b><span></span></figcaption>';
    this.canvas = this.element.querySelector("canvas");
    this.notice = this.element.querySelector(".notice");
    this.name = this.element.querySelector("b");
    this.numbers = this.element.querySelector("span");
    $("cameras").insertBefore(this.element, $("distances"));
    this.row = document.createElement("div");
    this.row.className = "row";
    this.row.innerHTML = '<b></b><span></span><div class="track"><div class="zone-slow"></div><div class="zone-stop"></div><i></i></div>';
    $("distance-rows").append(this.row);
  }

  async update() {
    if (this.busy) return;
    this.busy = true;
    try {
      const have = this.note ? "?have=" + this.note.frame : "";
      const answer = await ask(`/api/camera/${this.number}${have}`);
      if (answer.status === 200) {
        const note = JSON.parse(answer.headers.get("X-Takt-Picture"));
        const bitmap = await createImageBitmap(await answer.blob());
        this.bitmap?.close();
        [this.bitmap, this.note, this.error] = [bitmap, note, ""];
        this.changedAt = performance.now() - note.age_ms;
        this.draw();
      } else if (answer.status === 204) {
        this.error = "";
      } else {
        this.error = (await answer.text()).trim();
      }
    } catch {
      // The state request notices a lost connection, and the age of the picture shows below.
    } finally {
      this.busy = false;
    }
  }

  draw() {
    const { canvas, note, bitmap } = this;
    if (!note || !bitmap) return;
    const ratio = window.devicePixelRatio || 1;
    const width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
    if (!width || !height) return;
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    const pen = canvas.getContext("2d");
    const scale = Math.min(width / note.width, height / note.height);
    const left = (width - note.width * scale) / 2, top = (height - note.height * scale) / 2;
    pen.clearRect(0, 0, width, height);
    pen.drawImage(bitmap, left, top, note.width * scale, note.height * scale);
    const size = Math.round(12.5 * ratio), pad = Math.round(4 * ratio), tall = size + 2 * pad;
    pen.font = `700 ${size}px system-ui, "DejaVu Sans", sans-serif`;
    pen.textBaseline = "middle";
    pen.lineWidth = 2 * ratio;
    const taken = [];
    // The farthest first, so that the nearest lies on top; its label finds its place first, though.
    for (const object of note.objects.toReversed()) {
      const [x0, y0, x1, y1] = object.box_px.map((v, i) => v * scale + (i % 2 ? top : left));
      pen.strokeStyle = COLOURS[object.zone];
      pen.setLineDash(object.kind === "person" && note.same_frame ? [] : [6 * ratio, 4 * ratio]);
      pen.strokeRect(x0, y0, x1 - x0, y1 - y0);
    }
    pen.setLineDash([]);
    for (const object of note.objects) {
      const [x0, y0, , y1] = object.box_px.map((v, i) => v * scale + (i % 2 ? top : left));
      const text = (object.kind === "person" ? "" : "? ") + metres(object.distance_m);
      const wide = pen.measureText(text).width + 2 * pad;
      const x = Math.min(Math.max(x0, 0), width - wide);
      const places = [y0 - tall, y0, y1 - tall, y1, y0 - 2 * tall, y0 + tall];
      const free = (y) => y >= 0 && y + tall <= height &&
        taken.every((t) => x + wide <= t.x || t.x + t.wide <= x || y + tall <= t.y || t.y + tall <= y);
      const y = places.find(free);
      if (y === undefined) continue; // crowded: the nearest objects have theirs
      taken.push({ x, y, wide });
      pen.fillStyle = COLOURS[object.zone];
      pen.beginPath();
      pen.roundRect(x, y, wide, tall, 3 * ratio);
      pen.fill();
      pen.fillStyle = "#0b0e13";
      pen.fillText(text, x + pad, y + tall / 2 + ratio / 2);
    }
  }

  // Notice over the picture: an old picture never looks live.
  check() {
    const age = performance.now() - this.changedAt;
    const old = age > OLD_PICTURE_MS;
    let text = "";
    if (this.error) text = this.error;
    else if (old) text = Number.isFinite(age) ? `no new picture for ${(age / 1000).toFixed(1)} s` : "no picture yet";
    else if (this.note.health !== "ok") text = HEALTH[this.note.health] ?? words(this.note.health);
    else if (!this.note.same_frame) text = "boxes are of another frame";
    this.element.classList.toggle("old", old || Boolean(this.error));
    if (this.notice.textContent !== text) this.notice.textContent = text;
  }

  show(camera, state, span) {
    const blind = camera.health !== "ok";
    const zone = blind ? "stop" : camera.zone;
    this.element.classList.toggle("stop", zone === "stop");
    this.element.classList.toggle("reduce", zone === "reduce");
    this.element.classList.toggle("clear", zone === "clear");
    this.name.textContent = camera.name;
    this.numbers.textContent = `${whole(camera.frames)} frames · ${whole(camera.dropped)} dropped · worst ${ms(camera.worst_reaction_ms)}`;
    const [name, value, track] = this.row.children;
    name.textContent = camera.name;
    const known = zone !== "clear";
    value.textContent = blind ? "blind" : distance(camera.separation_m, known);
    value.className = { stop: "bad", reduce: "warn", clear: "" }[zone];
    const [slow, stop, mark] = track.children;
    const share = (d) => Math.min(Math.max(d / span, 0), 1) * 100 + "%";
    slow.style.width = share(state.reduce_distance_m);
    stop.style.width = share(state.protective_distance_m);
    mark.style.display = Number.isFinite(camera.separation_m) && camera.separation_m !== null && !blind ? "" : "none";
    mark.style.left = share(camera.separation_m);
  }
}

const cameras = [];

// ---- state ----

let state = null;
let answeredAt = -Infinity;
let asking = false;

async function updateState() {
  if (asking) return;
  asking = true;
  try {
    const answer = await ask("/api/status");
    if (!answer.ok) return;
    state = await answer.json();
    state.receivedAt = answeredAt = performance.now();
    while (cameras.length < state.cameras.length) cameras.push(new Camera(cameras.length));
    showState();
  } catch {
    // checkAge() says that the connection is lost.
  } finally {
    asking = false;
  }
}

function showState() {
  const { robot, reaction, threads } = state;
  document.title = `${state.stop ? "■ stopped" : "▶ " + state.light} · ${state.title}`;
  put("title", state.title);
  put("policy", state.policy || "–");
  put("threads", `${threads.total} (${threads.realtime} real-time)` + (threads.deviating ? `, ${threads.deviating} not as asked` : ""), threads.deviating ? "warn" : "");
  const seconds = Math.max(0, Math.floor(state.elapsed_s ?? 0));
  put("elapsed", `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`);

  const light = state.stop ? "red" : state.light;
  for (const lamp of document.querySelectorAll(".lamp")) lamp.classList.toggle("on", lamp.dataset.lamp === light);
  document.querySelector(".stack").setAttribute("aria-label", `stack light is ${light}`);
  const tones = { stop: "bad", reduce: "warn", clear: "" };
  put("separation", distance(state.separation_m, state.zone !== "clear"), tones[state.zone]);
  put("protective", metres(state.protective_distance_m));
  put("reduce", metres(state.reduce_distance_m));
  const p = state.protective;
  if (p?.distance_m > 0) {
    const ms = (seconds) => `${Math.round(seconds * 1000)} ms`;
    put(
      "formula",
      `S_p at full speed: (${p.human_speed_m_s.toFixed(1)} + ${p.robot_speed_m_s.toFixed(1)} m/s) × ` +
        `(T_r ${ms(p.reaction_s)} + T_s ${ms(p.stopping_s)}) + ${p.constants_m.toFixed(2)} m = ` +
        `${p.distance_m.toFixed(2)} m; T_r: tolerated ${ms(p.tolerated_s)}, measured ${ms(p.measured_s)}`,
    );
  }
  const percent = Math.round(Math.min(Math.max(state.speed_fraction ?? 0, 0), 1) * 100);
  put("speed", percent + " %");
  $("speed-bar").setAttribute("aria-valuenow", percent);
  $("speed-bar").firstElementChild.style.width = percent + "%";
  put("robot-speed", robot.connected ? Math.round((robot.speed_fraction ?? 0) * 100) + " %" : "–");

  put("robot-link", robot.connected ? "connected" : "lost", robot.connected ? "good" : "bad");
  put("robot-mode", words(robot.robot_mode), robot.robot_mode === "running" ? "" : "warn");
  put("robot-safety", words(robot.safety_mode), robot.safety_mode === "normal" ? "" : "warn");
  put("tcp", robot.tcp_pose.slice(0, 3).map((v) => (v ?? NaN).toFixed(2)).join("  "));
  put("tcp-speed", `${(robot.tcp_speed_m_s ?? NaN).toFixed(2)} m/s`);

  const measured = reaction.count > 0;
  const late = (t) => t > reaction.deadline_ms ? "bad" : "";
  put("last", measured ? ms(reaction.last_ms) : "–", measured ? late(reaction.last_ms) : "");
  put("mean", measured ? ms(reaction.mean_ms) : "–", measured ? late(reaction.mean_ms) : "");
  put("worst", measured ? ms(reaction.worst_ms) : "–", measured ? late(reaction.worst_ms) : "");
  put("deadline", ms(reaction.deadline_ms));
  put("misses", `${whole(reaction.misses)} of ${whole(reaction.count)}`, reaction.misses ? "bad" : "");
  const sum = (field) => state.cameras.reduce((total, camera) => total + camera[field], 0);
  put("frames", whole(sum("frames")));
  put("dropped", whole(sum("dropped")), sum("dropped") ? "warn" : "");
  drawHistogram();

  const seen = state.cameras.map((camera) => camera.separation_m ?? 0);
  const span = Math.max(4, state.reduce_distance_m * 1.5, Math.min(Math.max(...seen, 0) * 1.1, 10));
  state.cameras.forEach((camera, i) => cameras[i].show(camera, state, span));
  // The banner belongs to the same state as the lamps.
  checkAge();
}

// Banner: the light in words, or why nothing here is live.
function checkAge() {
  const now = performance.now();
  const silent = now - answeredAt;
  const age = state && state.sequence ? state.age_ms + now - state.receivedAt : Infinity;
  const body = document.body.classList, banner = $("banner");
  const lost = state !== null && (silent > LOST_MS || (state.sequence > 0 && age > STALE_MS));
  const waiting = !lost && (state === null || state.sequence === 0);
  body.toggle("lost", lost);
  body.toggle("waiting", waiting);
  let tone, word, text;
  if (lost && silent > LOST_MS) {
    [tone, word, text] = ["lost", "Connection lost", `what you see is ${(silent / 1000).toFixed(1)} s old; trying again`];
  } else if (lost) {
    [tone, word, text] = ["lost", "No news from the cell", `what you see is ${(age / 1000).toFixed(1)} s old`];
  } else if (waiting) {
    [tone, word, text] = ["lost", state ? "Waiting" : "Connecting", "the cell has not reported yet"];
  } else if (state.stop || state.light === "red") {
    [tone, word, text] = ["red", "Stopped", state.stop_reason || "no reason given"];
  } else if (state.light === "orange") {
    [tone, word, text] = ["orange", "Reduced speed", "somebody is within the reduce distance"];
  } else {
    [tone, word, text] = ["green", "Running", "nobody is within the reduce distance"];
  }
  if (banner.className !== tone) banner.className = tone;
  put("banner-word", word);
  put("banner-text", text);
  put("link", lost && silent > LOST_MS ? "lost" : waiting ? "waiting" : lost ? "stale" : "live");
  for (const camera of cameras) camera.check();
}

// ---- histogram ----

function drawHistogram() {
  const canvas = $("histogram"), { edges_ms: edges, counts, deadline_ms: deadline, count } = state.reaction;
  const ratio = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
  if (!width || !height || !counts.length) return;
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, width, height);
  const axis = 20 * ratio, top = 20 * ratio, floor = height - axis, left = 44 * ratio, right = width - 10 * ratio;
  const first = Math.log(edges[0]), last = Math.log(edges[edges.length - 1]);
  const x = (t) => left + (Math.log(t) - first) / (last - first) * (right - left);
  // The square root of the counts: a single late frame among thousands must be seen.
  const most = Math.max(...counts, 1);
  const y = (n) => floor - Math.sqrt(n / most) * (floor - top);
  pen.font = `${11 * ratio}px system-ui, "DejaVu Sans", sans-serif`;
  pen.textBaseline = "middle";

  // Times
  pen.textAlign = "center";
  let free = left;
  const steps = [2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 35, 40, 45, 50, 60, 70, 80, 100, 120, 150, 200, 250, 300, 400, 500, 600,
    800, 1000, 1500, 2000];
  for (const t of steps) {
    if (t < edges[0] || t > edges[edges.length - 1]) continue;
    const at = Math.round(x(t));
    pen.fillStyle = "#232c3a";
    pen.fillRect(at, top, ratio, floor - top);
    const half = pen.measureText(t + " ms").width / 2 + 5 * ratio;
    if (at - half < free || at + half > width) continue;
    free = at + half;
    pen.fillStyle = "#93a0b4";
    pen.fillText(t + " ms", at, floor + axis / 2 + 2 * ratio);
  }
  // Counts
  pen.textAlign = "right";
  pen.fillStyle = "#93a0b4";
  if (count) {
    pen.fillText(whole(most), left - 6 * ratio, top + 1 * ratio);
    if (most >= 8) pen.fillText(whole(Math.round(most / 4)), left - 6 * ratio, y(Math.round(most / 4)));
  }
  pen.fillText("0", left - 6 * ratio, floor - 2 * ratio);
  // Bars, at least two pixels high where there is anything
  counts.forEach((n, i) => {
    if (!n) return;
    const from = x(edges[i]), to = x(edges[i + 1]), high = Math.max(floor - y(n), 2 * ratio);
    const bar = (start, end, colour) => {
      pen.fillStyle = colour;
      pen.fillRect(start, floor - high, Math.max(end - start, ratio), high);
    };
    const gap = Math.min(1.5 * ratio, (to - from) / 4);
    bar(from + gap / 2, to - gap / 2, edges[i] >= deadline ? "#ff5252" : "#5aa9ff");
  });
  pen.fillStyle = "#3a4657";
  pen.fillRect(left, floor, right - left, ratio);
  // Deadline
  const at = x(deadline);
  pen.strokeStyle = "#ffffff";
  pen.lineWidth = 1.5 * ratio;
  pen.setLineDash([5 * ratio, 3 * ratio]);
  pen.beginPath();
  pen.moveTo(at, 3 * ratio);
  pen.lineTo(at, floor);
  pen.stroke();
  pen.setLineDash([]);
  pen.fillStyle = "#ffffff";
  const text = `deadline ${ms(deadline)}`;
  const fits = at + pen.measureText(text).width + 12 * ratio < width;
  pen.textAlign = fits ? "left" : "right";
  pen.fillText(text, at + (fits ? 6 : -6) * ratio, 9 * ratio);
}

// ---- pacing ----

function tick() {
  if (!document.hidden) {
    updateState();
    for (const camera of cameras) camera.update();
  }
  checkAge();
}

setInterval(tick, PERIOD_MS);
tick();
document.addEventListener("visibilitychange", tick);
window.addEventListener("resize", () => {
  if (state) drawHistogram();
  for (const camera of cameras) camera.draw();
});
