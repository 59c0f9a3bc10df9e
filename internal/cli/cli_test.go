package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
)

func TestVersionDescribesTheBuild(t *testing.T) {
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	for _, test := range []struct {
		info debug.BuildInfo
		want string
	}{
		{debug.BuildInfo{GoVersion: "go1.99"}, "gq (development) go1.99 "},
		{debug.BuildInfo{GoVersion: "go1.99", Main: debug.Module{Version: "v1.2.3"}}, "gq v1.2.3 go1.99 "},
		{
			debug.BuildInfo{GoVersion: "go1.99", Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{
				setting("vcs.revision", "0123456789abcdef0123"), setting("vcs.time", "2030-01-02T03:04:05Z"), setting("vcs.modified", "true"),
			}},
			"gq (development) (commit 0123456789ab, 2030-01-02T03:04:05Z, modified) go1.99 ",
		},
	} {
		if got := describe("gq", &test.info); !strings.HasPrefix(got, test.want) {
			t.Errorf("%q, want it to begin with %q", got, test.want)
		}
	}
}

func TestEveryKindHasAnExitStatus(t *testing.T) {
	for _, k := range enum.All[gq.ErrorKind]() {
		if _, ok := Exits[k]; !ok {
			t.Errorf("%v has none", k)
		}
	}
	for err, want := range map[error]int{
		gq.ErrNotFound: 3, gq.ErrStaleLease: 5, gq.ErrIllegalMove: 5, gq.ErrConflict: 5, gq.ErrDuplicateID: 5, gq.ErrTimeout: 6, gq.ErrInvalid: 2,
		gq.ErrStoreFailed: 4, gq.ErrClosed: 4, errors.New("x"): 1, context.DeadlineExceeded: 6,
	} {
		if got := ExitOf(fmt.Errorf("verb: %w", err)); got != want {
			t.Errorf("%v ends with %d, want %d", err, got, want)
		}
	}
}

// What a server says about a failure may repeat what others wrote.
func TestErrorsDoNotControlTheTerminal(t *testing.T) {
	root := &cobra.Command{Use: "gq", RunE: func(*cobra.Command, []string) error {
		return errors.New("type \x1b[2J\u009b2J\u202eevil\xff\nsecond line")
	}}
	var stderr strings.Builder
	if status := Run(t.Context(), root, []string{}, &stderr); status != ExitFailure {
		t.Errorf("exit status %d", status)
	}
	if want := "gq: type �[2J�2J�evil�\nsecond line\n"; stderr.String() != want {
		t.Errorf("the error is %q, want %q", stderr.String(), want)
	}
}
