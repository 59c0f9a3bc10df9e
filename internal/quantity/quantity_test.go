package quantity

import "testing"

func TestOf(t *testing.T) {
	for got, want := range map[string]string{
		Of(0, "job"):                    "0 jobs",
		Of(int64(1), "ready job"):       "1 ready job",
		Of(uint64(2), "ready job"):      "2 ready jobs",
		Of(-1, "job"):                   "-1 jobs",
		Of(1, "slot is", "slots are"):   "1 slot is",
		Of(2, "slot is", "slots are"):   "2 slots are",
		Of(1000000, "entry", "entries"): "1000000 entries",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
