package machine_test

import (
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

func TestQueuePattern(t *testing.T) {
	for _, c := range []struct {
		pattern, queue string
		want           bool
	}{
		{"mail", "mail", true}, {"mail", "mail.eu", false},
		{"mail.*", "mail.eu", true}, {"mail.*", "mail.", true}, {"mail.*", "mail", false}, {"mail.*", "mailer", false},
		{"*", "anything", true},
	} {
		if got := gq.MatchQueue(c.pattern, c.queue); got != c.want {
			t.Errorf("%s and %s: %t, want %t", c.pattern, c.queue, got, c.want)
		}
	}
	for _, good := range []string{"mail", "mail.*", "*", "a:b/c*"} {
		if err := machine.CheckQueuePattern("queues[0]", good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "*.mail", "a*b", "**", "mail .*", "mail?"} {
		faults := errs.FaultsOf(machine.CheckQueuePattern("queues[0]", bad))
		if len(faults) != 1 || faults[0].Field != "queues[0]" {
			t.Errorf("%q: %+v, want one fault", bad, faults)
		}
	}
}
