package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/faces/matching"
	"github.com/gopherqueue/gq/internal/quantity"
	"github.com/gopherqueue/gq/internal/wire"
)

const replayLong = `Recompute a past round of matching from the server's record and compare the seed,
the order of the providers, every assignment with its lease id and score, and the
requeued jobs.

ROUND is the number of a round, as POST /api/matching/rounds returns it, or with
--file a saved record. The computation runs here, not on the server. If anything
differs, the exit status is 1.`

// replay implements gq match replay.
type replay struct {
	matchingAPI
	file  bool
	input bool
}

func newMatchReplay(p process) *cobra.Command {
	r := &replay{matchingAPI: matchingAPI{process: p}}
	c := &cobra.Command{
		Use:   "replay ROUND",
		Short: "Compute a past round again and compare",
		Long:  replayLong,
		Example: `  gq match replay 17
  gq match replay 17 --input | gq match -
  curl -s localhost:8780/api/matching/rounds/17 > 17.json && gq match replay --file 17.json`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%s takes one round, and %d were given", c.CommandPath(), len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return r.run(c.Context(), args[0]) },
	}
	r.flags(c)
	c.Flags().BoolVar(&r.file, "file", false, "ROUND is a file with the record")
	c.Flags().BoolVar(&r.input, "input", false, "print the input of the round, as gq match reads it")
	return c
}

func (r *replay) run(ctx context.Context, round string) error {
	rec, err := r.find(ctx, round)
	if err != nil {
		return fmt.Errorf("replay round %s: %w", round, err)
	}
	if r.input {
		return wire.EncodeJSONIndented(r.stdout, rec.Input)
	}
	differs := rec.Check()
	if r.json {
		out := struct {
			Round       uint64 `json:"round"`
			Equal       bool   `json:"equal"`
			Difference  string `json:"difference,omitzero"`
			Seed        string `json:"seed"`
			Jobs        int    `json:"jobs"`
			Providers   int    `json:"providers"`
			Assignments int    `json:"assignments"`
		}{rec.Round, differs == nil, "", rec.Seed.String(), len(rec.Input.Jobs), len(rec.Input.Providers), len(rec.Assignments)}
		if differs != nil {
			out.Difference = differs.Error()
		}
		if err := wire.EncodeJSONIndented(r.stdout, out); err != nil {
			return err
		}
	}
	switch {
	case differs != nil:
		return &cli.StatusError{Status: cli.ExitFailure, Err: differs}
	case !r.json:
		fmt.Fprintf(r.stdout, "round %d: equal: %s and %s of %s and %s, seed %s\n", rec.Round,
			quantity.Of(len(rec.Assignments), "assignment"), quantity.Of(len(rec.Requeued), "requeued job"),
			quantity.Of(len(rec.Input.Jobs), "job"), quantity.Of(len(rec.Input.Providers), "provider"), rec.Seed)
	}
	return nil
}

// find reads the record of a round.
func (r *replay) find(ctx context.Context, round string) (rec matching.Recorded, err error) {
	var text []byte
	if r.file {
		text, err = readInput(r.process, round)
	} else {
		if _, err := strconv.ParseUint(round, 10, 64); err != nil {
			return rec, cli.Invalid("round", fmt.Sprintf("%.64q is not the number of a round; a file with a record needs --file", round))
		}
		text, _, err = r.call(ctx, http.MethodGet, "/rounds/"+round, nil)
	}
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(text, &rec); err != nil {
		return rec, cli.Invalid("record", fmt.Sprintf("is none: %v", err))
	}
	return rec, nil
}
