package ledger_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker/ledger"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// The account of a provider with the maximum number of leases fits into a document,
// however large its numbers.
func TestStatementFitsIntoADocument(t *testing.T) {
	s := ledger.Statement{Open: make([]ledger.Entry, match.MaxLeases)}
	for i := range s.Open {
		s.Open[i] = ledger.Entry{
			Lease: gq.LeaseID(strings.Repeat("f", 64)), Job: machine.NewJobID([16]byte{255}), Kind: match.Quantum, Units: gq.MaxCostUnits,
			Epoch: match.MaxInteger, At: math.MaxInt64, Match: match.MaxInteger,
		}
	}
	data, err := json.Marshal(s)
	if err == nil {
		err = store.CheckDocs([]store.Doc{{Kind: "matching.ledger", Name: "p", Data: data}})
	}
	if err != nil {
		t.Error(err)
	}
}
