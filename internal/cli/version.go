package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Version describes the build on one line.
func Version(program string) string { return describe(program, buildInfo()) }

// Release is the version of the module, "(development)" where it has none.
func Release() string { return release(buildInfo()) }

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

func describe(program string, info *debug.BuildInfo) string {
	text := program + " " + release(info)
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
