package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/gopherqueue/gq/internal/version"
)

// Version describes the build on one line.
func Version(program string) string { return describe(program, buildInfo()) }

func buildInfo() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return &debug.BuildInfo{GoVersion: runtime.Version()}
}

func describe(program string, info *debug.BuildInfo) string {
	text := program + " " + version.Of(info)
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
