// Uses the API through a client generated from its description: submits, claims,
// completes, lists events, purges and reads problems. Prints ok, or throws.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

declare const process: { argv: string[] };
const [, , baseUrl, token] = process.argv;

type Event = components["schemas"]["Event"];
type Problem = components["schemas"]["Problem"];

const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });

function want(ok: boolean, what: string, got: unknown): void {
  if (!ok) throw new Error(`${what}: ${JSON.stringify(got)}`);
}

const queue = "typescript";
const spec = { type: "t", queue, idempotency_key: "k", payload: { n: 1 }, priority: "HIGH" as const };

const first = await client.POST("/v1/jobs", { body: spec });
want(first.response.status === 201 && first.data?.state === "SCHEDULED", "submit", first);
const again = await client.POST("/v1/jobs", { body: spec });
want(again.response.status === 200 && again.data?.id === first.data?.id && "existing" in again.data! && again.data.existing === true, "submit again", again);
const id = first.data!.id;

const batch = await client.POST("/v1/jobs/batch", { body: { jobs: [{ type: "t", queue }, { type: "" }] } });
const answers = batch.data?.jobs ?? [];
want(answers.length === 2 && "id" in answers[0] && "problem" in answers[1] && answers[1].problem.code === "invalid", "batch", batch);

const claimed = await client.POST("/v1/claim", { body: { worker: "w", queues: [queue] } });
const job = claimed.data?.jobs[0];
want(job?.id === id && job.state === "RUNNING" && job.lease?.state === "ACTIVE", "claim", claimed);
const done = await client.POST("/v1/leases/{id}/complete", { params: { path: { id: job!.lease!.id } }, body: { result: { ok: true } } });
want(done.data?.state === "COMPLETED", "complete", done);

const listed = await client.GET("/v1/jobs", { params: { query: { queue, state: ["COMPLETED"], type: ["t"], limit: 10 } } });
want(listed.data?.jobs.length === 1 && listed.data.next_cursor === "", "list", listed);

const events = await client.GET("/v1/jobs/{id}/events", { params: { path: { id } }, parseAs: "text" });
const text: string = events.data ?? "";
const lines = text.trimEnd().split("\n").map((line): Event => JSON.parse(line));
want(lines.length > 2 && lines.every((e) => e.entity === id) && lines[0].type !== lines[lines.length - 1].type, "events", text);

const states: components["schemas"]["PurgeBody"]["states"] = ["COMPLETED"];
const purged = await client.POST("/v1/jobs/purge", { body: { queue, states } });
want(purged.data?.purged === 1, "purge", purged);
const cancelled = await client.POST("/v1/jobs/cancel", { body: { queue, states: ["SCHEDULED"] } });
want(cancelled.data?.cancelled === 1, "cancel", cancelled);

const gone = await client.GET("/v1/jobs/{id}", { params: { path: { id } } });
let problem: Problem | undefined = gone.error;
want(gone.response.status === 404 && problem?.code === "not_found", "a job that was purged", gone);
const wrong = await client.POST("/v1/jobs", { body: { type: "t", content_type: "application/json", payload_base64: "e2JhZA==" } });
problem = wrong.error;
want(wrong.response.status === 400 && problem?.faults?.[0].field === "payload", "a payload that is not JSON", wrong);
const nobody = await createClient<paths>({ baseUrl }).GET("/v1/stats");
problem = nobody.error;
want(nobody.response.status === 401 && problem?.code === "unauthenticated", "without a token", nobody);

console.log("ok");
