// Package gq is a job queue. Open a queue with [Open], define a kind of job with [NewKind],
// submit jobs through the kind, and handle them with package worker.
//
//	type Email struct{ To, Subject string }
//
//	var SendEmail = gq.NewKind[Email, gq.None]("email.send", gq.InQueue("mail"))
//
//	client, err := gq.Open(ctx, "file:gq-data")
//	id, err := SendEmail.Submit(ctx, client, Email{To: "ada@example.org"})
//
// Jobs are delivered at least once, under leases. Every claim of a job issues a larger lease
// version, and the queue rejects reports about a running job that carry an older one.
//
// A [Job] consists of a [Spec], which never changes, and a [State], which does. A [Policy] has
// the retry, lease and timeout settings of a job. A [Queue] has the settings that its jobs
// share. A [Lease] is the exclusive right to run a job, and an [Event] records one change of
// it. [Driver] lists every call. Package machine has the rules.
package gq
