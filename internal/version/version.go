// Package version tells which release of the module a program was built from.
package version

import (
	"runtime/debug"
	"sync"
)

const module = "github.com/gopherqueue/gq"

// Unreleased is the version of a build that has none.
const Unreleased = "(development)"

// Release returns the version of the module in this program, which may be the module itself or
// another one that imports it.
var Release = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Unreleased
	}
	return Of(info)
})

// Of returns the version of the module in a build.
func Of(info *debug.BuildInfo) string {
	v := info.Main.Version
	for _, d := range info.Deps {
		if d.Path == module {
			v = d.Version
			if d.Replace != nil {
				v = d.Replace.Version
			}
		}
	}
	if v == "" || v == "(devel)" {
		return Unreleased
	}
	return v
}
