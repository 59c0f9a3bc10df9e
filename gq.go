// Package gq is a job queue: open one with [Open], define what a job is with [NewKind], submit
// jobs through the kind, and handle them with package worker.
//
//	type Email struct{ To, Subject string }
//
//	var SendEmail = gq.NewKind[Email, gq.None]("email.send", gq.InQueue("mail"))
//
//	client, err := gq.Open(ctx, "file:gq-data")
//	id, err := SendEmail.Submit(ctx, client, Email{To: "ada@example.org"})
//
// Jobs are delivered at least once, under leases. Every claim of a job issues a larger lease
// version, and nothing about a running job is accepted without the newest one.
//
// The nouns are here: a [Job] is a [Spec], what was asked for, and a [State], how it stands. A
// [Policy] has the numbers that govern a job, a [Queue] what its jobs have in common, a [Lease]
// is the exclusive right to run one, and an [Event] tells what has happened. [Driver] lists
// every call. The rules are in package machine.
package gq
