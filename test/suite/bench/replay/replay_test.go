package replay

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestShare(t *testing.T) {
	g := NewWithT(t)
	for _, tc := range []struct{ total, n int }{{0, 7}, {9, 200}, {450, 150}, {301, 100}, {1, 1}} {
		sum, least, most := 0, tc.total, 0
		for i := range tc.n {
			own := share(tc.total, tc.n, i)
			sum, least, most = sum+own, min(least, own), max(most, own)
		}
		g.Expect(sum).To(Equal(tc.total), "%v", tc)
		g.Expect(most-least).To(BeNumerically("<=", 1), "%v", tc)
	}
}
