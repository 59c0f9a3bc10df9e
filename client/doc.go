// Package client talks to a queue that runs elsewhere. It has the methods of
// package engine, and they answer with the same values and the same errors:
// [errors.Is] finds [gq.ErrNotFound] or [gq.ErrStaleLease], and a [gq.InvalidError] lists
// everything that is wrong with a submission.
//
//	c, err := client.New("127.0.0.1:8790", client.Options{})
//	…
//	defer c.Close()
//	id, err := c.Enqueue(ctx, gq.Spec{Type: "email.send", Payload: …})
//
// A client is a worker.Queue, so that package worker runs unchanged against it.
// Claims, heartbeats and outcomes share one stream, which is opened when the
// first of them is made and again when it breaks.
//
// # Several servers
//
// Several addresses, separated by commas, are servers on the same store. A client
// tries them in their order whenever it has to connect.
//
// # What is repeated
//
// While the server cannot be reached, calls wait for it and are repeated for up
// to Options.RetryFor, but never at the risk of doing something twice:
//
//   - What only reads, [Client.Wait] and [Client.Cancel] are repeated.
//   - A submission is repeated if it has an idempotency key; a batch or a graph if
//     all of its jobs have one. Where the first attempt has made the job, the
//     answer of the second has Existing and Same set. With
//     Options.GenerateKeys a submission without a key gets a random one, which
//     the job then shows; its answers never have Existing set.
//   - Heartbeats and outcomes are repeated: the lease makes them harmless. Those
//     that spawn children under way, in a heartbeat, only if all of the children
//     have keys.
//   - Everything else is sent once. If the connection breaks before the answer
//     the error is [ErrUnreachable], and what was asked for may have happened.
//     A claim that is lost in this way leaves its jobs to their leases.
//
// # Deadlines
//
// Calls end with their context. Without a deadline the server sets one of its
// own for everything but waits and claims.
package client
