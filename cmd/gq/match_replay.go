package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matching"
	"github.com/gopherqueue/gq/internal/wire"
)

const replayLong = `Compute a past round of matching again, from the record that the server keeps of
it, and compare: the seed, the order in which providers were asked, every
assignment with its lease id and score, and the jobs that were requeued.

ROUND is the number of a round, as POST /api/matching/rounds answers it, or a
file with a record that was saved before (--file). The computation happens here,
not on the server. If anything differs the exit status is 1.`

// replay is gq match replay.
type replay struct {
	process
	http  string
	file  bool
	input bool
	json  bool
}

func newMatchReplay(p process) *cobra.Command {
	r := &replay{process: p}
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
	c.Flags().StringVar(&r.http, "http", "", "HTTP address of the server (default GQ_HTTP, or "+defaultHTTP+")")
	c.Flags().BoolVar(&r.file, "file", false, "ROUND is a file with the record")
	c.Flags().BoolVar(&r.input, "input", false, "print what the round was decided on, as gq match reads it")
	c.Flags().BoolVar(&r.json, "json", false, "print JSON for programs")
	return c
}

// defaultHTTP is where gq serve listens for HTTP unless told.
const defaultHTTP = "127.0.0.1:8780"

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
		return &statusError{exitFailure, differs}
	case !r.json:
		fmt.Fprintf(r.stdout, "round %d: equal: %d assignments and %d requeued jobs of %d jobs and %d providers, seed %s\n",
			rec.Round, len(rec.Assignments), len(rec.Requeued), len(rec.Input.Jobs), len(rec.Input.Providers), rec.Seed)
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
			return rec, usage("round", fmt.Sprintf("%.64q is not the number of a round; a file with a record needs --file", round))
		}
		text, err = r.fetch(ctx, round)
	}
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(text, &rec); err != nil {
		return rec, usage("record", fmt.Sprintf("is none: %v", err))
	}
	return rec, nil
}

// maxRecord is the largest record that is read.
const maxRecord = 256 << 20

func (r *replay) fetch(ctx context.Context, round string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	tls, err := clientTLS(r.getenv)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: tls}
	defer transport.CloseIdleConnections()
	base := cmp.Or(r.http, r.getenv("GQ_HTTP"), defaultHTTP)
	if !strings.Contains(base, "://") {
		scheme := "http://"
		if tls != nil {
			scheme = "https://"
		}
		base = scheme + base
	}
	at, err := url.JoinPath(base, matching.Base, "rounds", round)
	if err != nil {
		return nil, usage("http", fmt.Sprintf("%.80q is not an address", base))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, usage("http", fmt.Sprintf("%.80q is not an address", base))
	}
	if token := r.getenv("GQ_TOKEN"); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", wire.ErrUnreachable, err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxRecord))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", wire.ErrUnreachable, err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, refusal(answer.StatusCode, text)
	}
	return text, nil
}

// refusal is what a server answered instead of what it was asked for.
func refusal(status int, text []byte) error {
	var p wire.Problem
	if json.Unmarshal(text, &p) != nil || p.Code == "" {
		return fmt.Errorf("the server answered with HTTP status %d", status)
	}
	err := errors.New(p.Detail)
	switch status {
	case http.StatusNotFound:
		return fmt.Errorf("%w: %w", gq.ErrNotFound, err)
	case http.StatusUnauthorized:
		return fmt.Errorf("%w: %w", gq.ErrUnauthenticated, err)
	case http.StatusForbidden:
		return fmt.Errorf("%w: %w", gq.ErrDenied, err)
	default:
		return err
	}
}
