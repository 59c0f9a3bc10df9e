package postgres

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

// TestArrays compares the encoding with that of pgx, byte by byte except for the flag that
// announces NULLs, on which PostgreSQL does not rely.
func TestArrays(t *testing.T) {
	one, two := int64(1), int64(-2)
	mine, theirs := pgtype.NewMap(), pgtype.NewMap()
	registerArrays(mine)
	for _, test := range []struct {
		oid   uint32
		value any
	}{
		{pgtype.Int8ArrayOID, []int64{1, -2, 1 << 62}},
		{pgtype.Int8ArrayOID, []int64{}},
		{pgtype.Int8ArrayOID, []int64(nil)},
		{pgtype.Int8ArrayOID, []*int64{&one, nil, &two}},
		{pgtype.Int2ArrayOID, []int16{1, -2}},
		{pgtype.TextArrayOID, []string{"", "a", "ü"}},
		{pgtype.ByteaArrayOID, [][]byte{{1, 2}, nil, {}}},
		{pgtype.UUIDArrayOID, [][16]byte{{1}, {2}}},
		{pgtype.Int8ArrayOID, []int{1, 2}}, // encoded by pgx
	} {
		t.Run(fmt.Sprintf("%T", test.value), func(t *testing.T) {
			got, err := mine.Encode(test.oid, pgtype.BinaryFormatCode, test.value, nil)
			if err != nil {
				t.Fatal(err)
			}
			want, err := theirs.Encode(test.oid, pgtype.BinaryFormatCode, test.value, nil)
			if err != nil {
				t.Fatal(err)
			}
			if (got == nil) != (want == nil) {
				t.Fatalf("NULL is %t, want %t", got == nil, want == nil)
			}
			const flag = 4 // its offset and its length
			if len(got) >= 2*flag && len(want) >= 2*flag {
				clear(got[flag : 2*flag])
				clear(want[flag : 2*flag])
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%v is written as\n%x, want\n%x", test.value, got, want)
			}
		})
	}
}
