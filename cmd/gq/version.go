package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func newVersion(p process) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show which build this is",
		Long: `Show the version of the program, the commit it was built from where that is
known, the Go version and the platform, on one line.`,
		Example: "  gq version",
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(p.stdout, version())
			return err
		},
	}
}

// version describes the build on one line.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{GoVersion: runtime.Version()}
	}
	return describe(info)
}

func describe(info *debug.BuildInfo) string {
	release := info.Main.Version
	if release == "" || release == "(devel)" {
		release = "(development)"
	}
	text := "gq " + release
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
