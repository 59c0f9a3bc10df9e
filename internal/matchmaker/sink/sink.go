// Package sink has the sinks that a server can be configured with: a file of JSON lines, a
// URL, and a queue of the same server. It also asks a URL about proofs and findings.
package sink

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/webhook"
)

// Record is what sinks accept.
type Record interface {
	match.Claim | match.Ruling | match.RoundProof
	RecordID() string
}

// message is a record as it leaves the server.
type message struct {
	ID   string `json:"id"`   // the same if the record is repeated
	Type string `json:"type"` // matching.claim, matching.sla or matching.round
	Data any    `json:"data"`
}

func messageOf[T Record](r T) message {
	m := message{ID: r.RecordID(), Data: r}
	kind, _, _ := strings.Cut(m.ID, "-")
	m.Type = "matching." + kind
	return m
}

// Target is a parsed target of a sink.
type Target struct {
	file, url, queue string
}

// Parse parses the target of a sink: file:PATH, queue:NAME, or a URL with http or https. The
// error says what is wrong and what is expected.
func Parse(text string) (t Target, err error) {
	scheme, rest, _ := strings.Cut(text, ":")
	switch scheme {
	case "file":
		if t.file = rest; rest == "" {
			return t, fmt.Errorf("%.80q names no file; want file:PATH", text)
		}
	case "queue":
		t.queue = rest
		switch err := machine.CheckQueueName(rest); {
		case rest == "" || err != nil:
			return t, fmt.Errorf("%.80q names no queue; want queue:NAME", text)
		case rest == "matching" || rest == "taskqueue":
			return t, fmt.Errorf("queue %s has jobs of its own kind; choose another queue", rest)
		}
	case "http", "https":
		t.url = text
		return t, CheckURL(text)
	default:
		return t, fmt.Errorf("%.80q is not a target; want file:PATH, queue:NAME or a URL such as https://example.org/claims", text)
	}
	return t, nil
}

// CheckURL checks a URL that the server calls.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("the URL is not well-formed")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("%.80q is not a URL such as https://example.org/claims", u.Redacted())
	case u.User != nil:
		return fmt.Errorf("the URL has a user name; requests are signed instead, see gq webhook secret")
	}
	return nil
}

// Submitter submits jobs.
type Submitter interface {
	SubmitBatch(ctx context.Context, specs []gq.Spec) ([]gq.SubmitResult, error)
}

// Environment is what sinks need of a server.
type Environment struct {
	Queue  Submitter
	Secret webhook.Secret // signs requests
}

// Open opens the sink at a target. It fails if a file cannot be written.
func Open[T Record](t Target, e Environment) (match.Sink[T], error) {
	switch {
	case t.file != "":
		f := &file{path: t.file}
		if err := f.append(nil); err != nil {
			return nil, err
		}
		return func(_ context.Context, records []T) error { return appendTo(f, records) }, nil
	case t.queue != "":
		return func(ctx context.Context, records []T) error { return submit(ctx, e.Queue, t.queue, records) }, nil
	default:
		c := newCaller(t.url, e.Secret)
		delivered := map[string]bool{} // of the batch that failed last
		return func(ctx context.Context, records []T) error {
			for _, r := range records {
				m := messageOf(r)
				if delivered[m.ID] {
					continue
				}
				if err := c.call(ctx, m.ID, m, nil); err != nil {
					return err
				}
				delivered[m.ID] = true
			}
			clear(delivered)
			return nil
		}, nil
	}
}

// keyScope is the scope of the keys of jobs that are records.
const keyScope = "matching.sink"

// submit makes a job of every record. Its key is the record's id, so that a record that is
// repeated within the key's window makes no second job.
func submit[T Record](ctx context.Context, q Submitter, queue string, records []T) error {
	specs := make([]gq.Spec, len(records))
	for i, r := range records {
		m := messageOf(r)
		data, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("encode record %s: %w", m.ID, err)
		}
		specs[i] = gq.Spec{
			Queue: queue, Type: m.Type, Payload: gq.Payload{Data: data, ContentType: gq.JSON},
			Key: gq.IdempotencyKey{Scope: keyScope, Name: m.ID},
		}
	}
	results, err := q.SubmitBatch(ctx, specs)
	if err != nil {
		return fmt.Errorf("submit to queue %s: %w", queue, err)
	}
	for i := range results {
		if err := results[i].Err; err != nil {
			return fmt.Errorf("submit record %s to queue %s: %w", specs[i].Key.Name, queue, err)
		}
	}
	return nil
}

// within is the time limit of one request.
const within = 10 * time.Second
