package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq/internal/cli"
	release "github.com/gopherqueue/gq/internal/version"
	"github.com/gopherqueue/gq/internal/wire"
)

func newVersion(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "version",
		Short: "Show the version",
		Long: `Show the version, the commit if known, the Go version and the platform, on one
line.`,
		Example: "  gq version\n  gq version --json",
		Args:    cli.NoArguments,
	}
	inJSON := jsonFlag(c)
	c.RunE = func(*cobra.Command, []string) error {
		if *inJSON {
			return wire.EncodeJSON(p.stdout, struct {
				Version  string `json:"version"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
				Build    string `json:"build"`
			}{release.Release(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, version()})
		}
		_, err := fmt.Fprintln(p.stdout, version())
		return err
	}
	return c
}

// jsonFlag adds --json to a command that calls no server.
func jsonFlag(c *cobra.Command) *bool {
	return c.Flags().Bool("json", false, "print JSON for programs")
}

// version describes the build on one line.
func version() string { return cli.Version("gq") }
