package remote

import (
	"errors"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
)

// A URL without a server is refused when it is opened, not when it is used.
func TestURLWithoutServer(t *testing.T) {
	for _, url := range []string{"gq:", "gq://", "gq:///", "gqs://", "gq://,", "gq://127.0.0.1:8790,", "gq://:"} {
		c, err := gq.Open(t.Context(), url)
		if err == nil {
			_ = c.Close()
		}
		if !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), "has no server") {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{"gq://127.0.0.1:8790", "gq://a:1,b:2", "gq://[::1]:8790"} {
		c, err := gq.Open(t.Context(), url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		_ = c.Close()
	}
}
