package httpx

import "testing"

func TestForeignHosts(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1:8780": false, "127.0.0.1": false, "[::1]:8780": false, "::1": false, "localhost:8780": false, "LOCALHOST.": false,
		"gq.localhost": false, "10.0.0.7:80": false, "queue:8780": false, "": false,
		"evil.example": true, "evil.example:8780": true, "127.0.0.1.evil.example": true, "localhost.evil.example:8780": true,
	} {
		if ForeignHost(host) != want {
			t.Errorf("%q is foreign: %v, want %v", host, !want, want)
		}
	}
}
