// OpenTelemetry's exporters for Node against a real daemon: by gRPC on the socket,
// by HTTP (binary and JSON) on the loopback port.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { context, trace } from "@opentelemetry/api";
import { OTLPTraceExporter as GRPC } from "@opentelemetry/exporter-trace-otlp-grpc";
import { OTLPTraceExporter as JSONExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { OTLPTraceExporter as Proto } from "@opentelemetry/exporter-trace-otlp-proto";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";

const binary = process.env.CKPTSIDECAR_BIN;
assert.ok(binary, "CKPTSIDECAR_BIN names the program");

const running = [];
after(() => running.forEach((stop) => stop()));

async function freePort() {
  const server = net.createServer().listen(0, "127.0.0.1");
  await new Promise((done) => server.once("listening", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

// start starts a daemon of its own, and answers how to ask and reach it.
async function start() {
  const home = mkdtempSync(join(tmpdir(), "n"));
  const port = await freePort();
  const env = {
    PATH: process.env.PATH, HOME: home, XDG_RUNTIME_DIR: home, CKPTSIDECAR_SOCKET: join(home, "ckpt.sock"), CKPTSIDECAR_DB: join(home, "ckpt.db"),
    CKPTSIDECAR_OTLP_ENABLED: "true", CKPTSIDECAR_OTLP_LOOPBACK: `127.0.0.1:${port}`,
  };
  const child = spawn(binary, ["serve"], { env, stdio: ["ignore", "ignore", "pipe"] });
  const ready = new Promise((done, failed) => {
    let log = "";
    child.stderr.on("data", (text) => (log += text).includes("msg=ready") && done());
    child.once("exit", () => failed(new Error(`the daemon ended:\n${log}`)));
  });
  running.push(() => {
    child.removeAllListeners("exit");
    child.kill("SIGKILL");
    rmSync(home, { recursive: true, force: true });
  });
  await ready;
  const ask = (...args) => execFileSync(binary, args, { env, encoding: "utf8" });
  const lines = (text) => Object.fromEntries(text.trim().split("\n").map((line) => line.replace("export ", "").split(/=(.*)/s)));
  return { ask, port, token: ask("token", "create").trim(), grpc: lines(ask("otlp", "env")), http: lines(ask("otlp", "env", "--http")) };
}

// conversation makes the spans of one: an agent, two answers, three calls of tools.
function conversation(name) {
  const memory = new InMemorySpanExporter();
  const provider = new BasicTracerProvider({
    resource: resourceFromAttributes({ "service.name": "shop" }),
    spanProcessors: [new SimpleSpanProcessor(memory)],
  });
  const tracer = provider.getTracer("test");
  const root = tracer.startSpan("invoke_agent planner", {
    attributes: { "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner", "gen_ai.conversation.id": name },
  });
  const below = trace.setSpan(context.active(), root);
  for (let n = 0; n < 3; n++) {
    tracer.startSpan("chat", { attributes: { "gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 7 } }, below).end();
    tracer.startSpan("execute_tool search", {
      attributes: { "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.arguments": `{"q":"PRIVATE ${n}"}` },
    }, below).end();
    tracer.startSpan("GET", {}, below).end();
  }
  root.end();
  return memory.getFinishedSpans();
}

function send(exporter, spans) {
  return new Promise((done) => exporter.export(spans, (result) => done(result)));
}

// holds waits until a conversation is a run, and checks that it is there once.
async function holds(daemon, name, duplicates) {
  let steps;
  for (;;) {
    try {
      steps = JSON.parse(daemon.ask("steps", "planner", "--run", name, "--json"));
      break;
    } catch (error) {
      if (error.status !== 3) throw error; // not found: the spans wait yet
      await sleep(50);
    }
  }
  assert.equal(steps.steps.length, 3, "steps");
  assert.deepEqual([...new Set(steps.steps.map((s) => `${s.name} ${s.status} ${s.args}`))], ["search succeeded null"]);
  const { otlp } = JSON.parse(daemon.ask("status", "--json"));
  assert.deepEqual({ ...otlp.spans, ignored: 0 }, { step: 3, usage: 4, ignored: 0, duplicate: duplicates, late: 0, refused: 0 });
}

test("gRPC on the socket, by the environment alone", async () => {
  const daemon = await start();
  Object.assign(process.env, daemon.grpc);
  const exporter = new GRPC();
  const spans = conversation("talk-1");
  assert.equal((await send(exporter, spans)).code, 0);
  assert.equal((await send(exporter, spans)).code, 0); // as who has lost the answer
  await exporter.shutdown();
  for (const name of Object.keys(daemon.grpc)) delete process.env[name];
  await holds(daemon, "talk-1", 7);
});

for (const [kind, Exporter] of [["binary", Proto], ["JSON", JSONExporter]]) {
  test(`HTTP on the port, ${kind}`, async () => {
    const daemon = await start();
    Object.assign(process.env, daemon.http, { OTEL_EXPORTER_OTLP_HEADERS: daemon.http.OTEL_EXPORTER_OTLP_HEADERS.replace("TOKEN", daemon.token) });
    const exporter = new Exporter();
    assert.equal((await send(exporter, conversation("talk-2"))).code, 0);
    await exporter.shutdown();
    for (const name of Object.keys(daemon.http)) delete process.env[name];
    await holds(daemon, "talk-2", 0);
  });

  test(`HTTP on the port with a lost answer, ${kind}`, async () => {
    const daemon = await start();
    let lost = false;
    const proxy = http.createServer((request, reply) => {
      const onward = http.request({ port: daemon.port, host: "127.0.0.1", path: request.url, method: "POST", headers: request.headers }, (answer) => {
        const status = lost ? answer.statusCode : 503;
        lost = true;
        reply.writeHead(status, { "content-type": answer.headers["content-type"] });
        answer.pipe(reply);
      });
      request.pipe(onward);
    }).listen(0, "127.0.0.1");
    await new Promise((done) => proxy.once("listening", done));
    const exporter = new Exporter({ url: `http://127.0.0.1:${proxy.address().port}/v1/traces`, headers: { authorization: `Bearer ${daemon.token}` } });
    assert.equal((await send(exporter, conversation("talk-3"))).code, 0);
    await exporter.shutdown();
    proxy.closeAllConnections();
    proxy.close();
    await holds(daemon, "talk-3", 7);
  });
}

test("a wrong token sends nothing", async () => {
  const daemon = await start();
  const exporter = new Proto({ url: `http://127.0.0.1:${daemon.port}/v1/traces`, headers: { authorization: "Bearer wrong" } });
  assert.equal((await send(exporter, conversation("talk-4"))).code, 1);
  await exporter.shutdown();
});
