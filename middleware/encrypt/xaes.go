package encrypt

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"fmt"
)

const (
	nonceSize = 24
	tagSize   = 16
)

// xaes is XAES-256-GCM as C2SP specifies it: AES-256-GCM with a key that is derived from the first
// half of a nonce of 192 bits. Random nonces of that size do not repeat, which GCM's own 96 bits
// promise for 2³² messages only.
type xaes struct {
	block cipher.Block
	k1    [aes.BlockSize]byte
}

func newXAES(secret []byte) (*xaes, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, fmt.Errorf("make a cipher: %w", err)
	}
	x := &xaes{block: block}
	block.Encrypt(x.k1[:], x.k1[:])
	var carry byte
	for i := len(x.k1) - 1; i >= 0; i-- {
		carry, x.k1[i] = x.k1[i]>>7, x.k1[i]<<1|carry
	}
	x.k1[len(x.k1)-1] ^= byte(subtle.ConstantTimeByteEq(carry, 1)) * 0b10000111
	return x, nil
}

// derived returns AES-256-GCM for the messages whose nonces begin with these 12 bytes.
func (x *xaes) derived(nonce []byte) (cipher.AEAD, error) {
	secret := make([]byte, 0, 2*aes.BlockSize)
	for half := byte(1); half <= 2; half++ {
		m := append([]byte{0, half, 'X', 0}, nonce[:12]...)
		subtle.XORBytes(m, m, x.k1[:])
		x.block.Encrypt(m, m)
		secret = append(secret, m...)
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, fmt.Errorf("make a cipher: %w", err)
	}
	return cipher.NewGCM(block)
}

// seal appends the sealed content to out.
func (x *xaes) seal(out, nonce, content, about []byte) ([]byte, error) {
	gcm, err := x.derived(nonce)
	if err != nil {
		return nil, err
	}
	return gcm.Seal(out, nonce[12:], content, about), nil
}

// open returns the content of what seal appended.
func (x *xaes) open(nonce, sealed, about []byte) ([]byte, error) {
	gcm, err := x.derived(nonce)
	if err != nil {
		return nil, err
	}
	return gcm.Open(nil, nonce[12:], sealed, about)
}
