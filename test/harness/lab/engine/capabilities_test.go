package engine

import (
	"slices"
	"testing"
)

func TestMissingCapabilities(t *testing.T) {
	for _, tt := range []struct {
		name, status string
		want         []string
	}{
		{"none", "CapEff:\t0\nCapBnd:\t000001ffffffffff\n", nil},
		{"one", "CapBnd:\t000001fffeffffff\n", []string{"SYS_RESOURCE"}},
		{"of an old kernel", "CapBnd:\t0000003fffffffff\n", nil},
		{"two", "CapBnd:\t0000003ffffffff6\n", []string{"CHOWN", "FOWNER"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := missingCapabilities(tt.status)
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	for _, status := range []string{"", "CapBnd:\tnonsense\n"} {
		if _, err := missingCapabilities(status); err == nil {
			t.Errorf("%q was accepted", status)
		}
	}
}
