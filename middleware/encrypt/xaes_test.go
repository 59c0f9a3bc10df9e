package encrypt

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// The test vectors of https://c2sp.org/XAES-256-GCM.
func TestXAES(t *testing.T) {
	for _, v := range []struct {
		key         byte
		about, want string
	}{
		{1, "", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"},
		{3, "c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"},
	} {
		x, err := newXAES(bytes.Repeat([]byte{v.key}, 32))
		if err != nil {
			t.Fatal(err)
		}
		nonce := []byte("ABCDEFGHIJKLMNOPQRSTUVWX")
		sealed, err := x.seal(nil, nonce, []byte("XAES-256-GCM"), []byte(v.about))
		if got := hex.EncodeToString(sealed); err != nil || got != v.want {
			t.Errorf("got %s, %v, want %s", got, err, v.want)
		}
		if plain, err := x.open(nonce, sealed, []byte(v.about)); err != nil || string(plain) != "XAES-256-GCM" {
			t.Errorf("opened %q, %v", plain, err)
		}
	}
}
