package client_test

import "testing"

func TestSmoke(t *testing.T) {
	f := serve(t)
	id := f.job()
	j := f.claim()
	if j.Spec.ID != id {
		t.Fatal(j)
	}
	s := must(f.Complete(t.Context(), j.State.Lease.Ref(), []byte("1")))(t)
	t.Log(s)
	t.Log(must(f.Wait(t.Context(), id))(t))
}
