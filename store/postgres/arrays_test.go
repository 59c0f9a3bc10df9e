package postgres

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

// TestArrays compares what is written with what pgx writes, byte by byte but for
// the flag that says whether there is a NULL, which PostgreSQL does not rely on.
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
		{pgtype.Int8ArrayOID, []int{1, 2}}, // left to pgx
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
			const flag = 4 // where it begins, and how long it is
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
