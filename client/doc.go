// Package client calls a queue on a server. It has the methods of package engine, which return
// the same values and errors: [errors.Is] finds [gq.ErrNotFound] or [gq.ErrStaleLease], and a
// [gq.InvalidError] lists all faults of a submission.
//
//	c, err := client.New("127.0.0.1:8790", client.Options{})
//	…
//	defer c.Close()
//	id, err := c.Enqueue(ctx, gq.Spec{Type: "email.send", Payload: …})
//
// A client is a worker.Queue, so package worker can use it. Claims, heartbeats and outcomes
// share one stream. The client opens it with the first of these calls and again when it breaks.
//
// # Several servers
//
// Several addresses, separated by commas, are servers on the same store. The client tries them
// in order whenever it has to connect.
//
// # Retries
//
// While the server is unreachable, calls wait for it and are retried for up to
// Options.RetryFor, unless a retry could take effect twice:
//
//   - The client retries reads, [Client.Wait], and calls that change nothing the second time:
//     [Client.Cancel], [Client.Reschedule], [Client.DeclareQueue], [Client.DeclareSchedule],
//     [Client.BackfillSchedule], [Client.CancelWorkflow], [Client.Signal], [Client.Replay],
//     [Client.RetryRefused] and [Client.DiscardRefused].
//   - It retries submissions. One without an idempotency key gets a random key of the client's
//     own, so that a retry finds the job which the first attempt stored; nobody sees that key, and
//     its result never has Existing set. With a key of the caller, the result of such a retry has
//     Existing and Same set. Options.SendOnce turns the client's keys off. A unique job is sent
//     once, because the job may have lost its key or would collide with itself, and so is a batch
//     or graph with one. A workflow gets its id from the client and is retried too.
//   - It retries heartbeats and outcomes, which are idempotent under their lease. It retries a
//     heartbeat that spawns children only if all of them have keys.
//   - It sends every other call once. If the connection breaks before the answer, the error is
//     [ErrOutcomeUnknown]: the call may have taken effect. Jobs of a claim lost in this way
//     become claimable again when their leases expire.
//
// # Deadlines
//
// Calls end with their context. If the context has no deadline, the server sets one, except for
// waits and claims.
package client
