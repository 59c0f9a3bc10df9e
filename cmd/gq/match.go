package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/match"
)

const matchLong = `Compute one round of matching: which provider gets which job.

FILE holds the input as one JSON object, - reads it from standard input: the
providers and queued jobs of one instant, the policy, and what the seed is made
of. The result is a JSON object on standard output:

  seed         the seed of the round, in hexadecimal
  order        the providers of the snapshot in the order they were asked
  assignments  job_id, provider_id, lease_id, attempt and score_ppb of each, in
               the order made
  requeued     jobs that were visited and fit nobody

The same input gives the same result everywhere, whatever the order of its
lists; nothing else has an influence, the clock included. So a past round can be
computed again by anyone who has its input. docs/matching.md explains each
member and each rule.

If the input is invalid, everything that is wrong with it goes to standard error
and nothing to standard output.`

func newMatch(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "match FILE",
		Short: "Compute one round of matching from a file",
		Long:  matchLong,
		Example: `  gq match round.json
  gq match - < round.json | jq '.assignments[] | .job_id + " " + .provider_id'`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%s takes one file, or - for standard input, and %d were given", c.CommandPath(), len(args))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return runMatch(p, args[0]) },
	}
	c.Flags().Bool("json", false, "print JSON, which is the default")
	c.AddCommand(newMatchReplay(p), newMatchRounds(p), newMatchCancel(p))
	return c
}

func runMatch(p process, file string) error {
	text, err := readInput(p, file)
	if err != nil {
		return fmt.Errorf("match: %w", err)
	}
	in, err := match.Decode(text)
	if err != nil {
		return fmt.Errorf("match %s: %w", file, err)
	}
	result, err := match.Match(&in)
	if err != nil {
		return fmt.Errorf("match %s: %w", file, err)
	}
	out := json.NewEncoder(p.stdout)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	if err := out.Encode(result); err != nil {
		return fmt.Errorf("match %s: %w", file, err)
	}
	return nil
}

// readInput reads a whole file, or standard input for "-".
func readInput(p process, file string) ([]byte, error) {
	if file == "-" {
		text, err := io.ReadAll(p.stdin)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return text, nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cli.Invalid("file", fmt.Sprintf("there is no %.200q", file))
	}
	return text, err
}
