// Uses the API through a client generated from its description: submits, claims,
// completes, lists events, purges and reads problems. Prints ok, or ends with what
// was wrong.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"github.com/gopherqueue/gq/tools/openapi/api"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

// failed says what was wrong with an answer, or with getting one.
func failed(what string, err error, body func() []byte) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %s", what, body())
}

func run(ctx context.Context, base, token string) error {
	authorized := func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}
	c, err := api.NewClientWithResponses(base, api.WithRequestEditorFn(authorized))
	if err != nil {
		return err
	}
	queue, key := "go", "k"
	spec := api.SubmitBody{Type: "t", Queue: &queue, IdempotencyKey: &key}
	first, err := c.SubmitJobWithResponse(ctx, nil, spec)
	if err != nil || first.JSON201 == nil || first.JSON201.State != "SCHEDULED" {
		return failed("submit", err, func() []byte { return first.Body })
	}
	id := first.JSON201.Id
	again, err := c.SubmitJobWithResponse(ctx, nil, spec)
	if err != nil || again.JSON200 == nil || again.JSON200.Id != id || again.JSON200.Existing == nil || !*again.JSON200.Existing {
		return failed("submit again", err, func() []byte { return again.Body })
	}
	claimed, err := c.ClaimJobsWithResponse(ctx, api.ClaimBody{Worker: "w", Queues: &[]string{queue}})
	if err != nil || claimed.JSON200 == nil || len(claimed.JSON200.Jobs) != 1 || claimed.JSON200.Jobs[0].Lease == nil {
		return failed("claim", err, func() []byte { return claimed.Body })
	}
	done, err := c.CompleteLeaseWithResponse(ctx, claimed.JSON200.Jobs[0].Lease.Id, api.CompleteBody{})
	if err != nil || done.JSON200 == nil || done.JSON200.State != "COMPLETED" {
		return failed("complete", err, func() []byte { return done.Body })
	}

	events, err := c.JobEventsWithResponse(ctx, id, nil)
	if err != nil || events.StatusCode() != http.StatusOK {
		return failed("events", err, func() []byte { return events.Body })
	}
	lines := bytes.Split(bytes.TrimSpace(events.Body), []byte("\n"))
	for _, line := range lines {
		var e api.Event
		if err := json.Unmarshal(line, &e); err != nil || e.Entity != id.String() {
			return fmt.Errorf("an event: %v, %s", err, line)
		}
	}
	if len(lines) < 3 {
		return fmt.Errorf("%d events: %s", len(lines), events.Body)
	}

	purged, err := c.PurgeJobsWithResponse(ctx, api.PurgeBody{Queue: &queue, States: []api.PurgeBodyStates{"COMPLETED"}})
	if err != nil || purged.JSON200 == nil || purged.JSON200.Purged != 1 {
		return failed("purge", err, func() []byte { return purged.Body })
	}

	gone, err := c.GetJobWithResponse(ctx, id, nil)
	if err != nil || gone.ApplicationproblemJSONDefault == nil || gone.ApplicationproblemJSONDefault.Code != "not_found" {
		return failed("a job that was purged", err, func() []byte { return gone.Body })
	}
	wrong, err := c.SubmitJobWithResponse(ctx, nil, api.SubmitBody{Type: ""})
	if err != nil || wrong.ApplicationproblemJSON400 == nil || wrong.ApplicationproblemJSON400.Faults == nil {
		return failed("a job without a type", err, func() []byte { return wrong.Body })
	}
	nobody, err := api.NewClientWithResponses(base)
	if err != nil {
		return err
	}
	stats, err := nobody.StatsWithResponse(ctx, nil)
	if err != nil || stats.ApplicationproblemJSON401 == nil || stats.ApplicationproblemJSON401.Code != "unauthenticated" {
		return failed("without a token", err, func() []byte { return stats.Body })
	}
	return nil
}
