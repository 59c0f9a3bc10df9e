package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq/internal/wire"
)

func newVersion(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "version",
		Short: "Show which build this is",
		Long: `Show the version of the program, the commit it was built from where that is
known, the Go version and the platform, on one line.`,
		Example: "  gq version\n  gq version --json",
		Args:    noArguments,
	}
	inJSON := jsonFlag(c)
	c.RunE = func(*cobra.Command, []string) error {
		if *inJSON {
			return wire.EncodeJSON(p.stdout, struct {
				Version  string `json:"version"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
				Build    string `json:"build"`
			}{release(buildInfo()), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, version()})
		}
		_, err := fmt.Fprintln(p.stdout, version())
		return err
	}
	return c
}

// jsonFlag adds --json to a command that talks to no server.
func jsonFlag(c *cobra.Command) *bool {
	return c.Flags().Bool("json", false, "print JSON for programs")
}

// version describes the build on one line.
func version() string { return describe(buildInfo()) }

func buildInfo() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return &debug.BuildInfo{GoVersion: runtime.Version()}
}

func release(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	return "(development)"
}

func describe(info *debug.BuildInfo) string {
	text := "gq " + release(info)
	settings := make(map[string]string, len(info.Settings))
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	var commit []string
	if revision := settings["vcs.revision"]; revision != "" {
		commit = append(commit, "commit "+revision[:min(len(revision), 12)])
	}
	if at := settings["vcs.time"]; at != "" {
		commit = append(commit, at)
	}
	if settings["vcs.modified"] == "true" {
		commit = append(commit, "modified")
	}
	if len(commit) > 0 {
		text += " (" + strings.Join(commit, ", ") + ")"
	}
	return fmt.Sprintf("%s %s %s/%s", text, info.GoVersion, runtime.GOOS, runtime.GOARCH)
}
