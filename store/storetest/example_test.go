package storetest_test

import (
	"fmt"
	"strings"

	"github.com/gopherqueue/gq/store/storetest"
)

// Every case states the clause of the contract that it checks.
func ExampleCases() {
	for _, c := range storetest.Cases() {
		if strings.HasPrefix(c.Name, "Fence/R") {
			fmt.Printf("%s: %s\n", c.Name, c.Clause)
		}
	}
	// Output:
	// Fence/Reclaimed: only the newest lease may settle a job: a former holder is ErrStaleLease and the new holder's lease is untouched
	// Fence/Reopen: leases fence across a restart: the newest goes on, the others stay stale, and versions go on growing
}
