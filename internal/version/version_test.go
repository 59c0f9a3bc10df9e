package version_test

import (
	"runtime/debug"
	"testing"

	"github.com/gopherqueue/gq/internal/version"
)

func TestOf(t *testing.T) {
	ours := "github.com/gopherqueue/gq"
	for name, c := range map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"unknown":                    {want: version.Unreleased},
		"built in its directory":     {debug.BuildInfo{Main: debug.Module{Path: ours, Version: "(devel)"}}, version.Unreleased},
		"installed":                  {debug.BuildInfo{Main: debug.Module{Path: ours, Version: "v1.2.3"}}, "v1.2.3"},
		"imported by another module": {debug.BuildInfo{Main: debug.Module{Path: "shop", Version: "v9.0.0"}, Deps: []*debug.Module{{Path: ours, Version: "v1.2.3"}}}, "v1.2.3"},
		"replaced by a directory": {debug.BuildInfo{Main: debug.Module{Path: "shop", Version: "v9.0.0"}, Deps: []*debug.Module{
			{Path: ours, Version: "v1.2.3", Replace: &debug.Module{Path: "../gq"}},
		}}, version.Unreleased},
	} {
		if got := version.Of(&c.info); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
