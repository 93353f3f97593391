package update

import "testing"

// The order is that of https://semver.org, section 11.
func TestThreat26_OrderOfVersions(t *testing.T) {
	t.Parallel()
	ordered := []string{
		"v0.0.0-dev", "v0.0.0", "v0.1.0-3-gabcdef", "v0.1.0", "v0.9.0", "v0.10.0", "v1.0.0-alpha", "v1.0.0-alpha.1", "v1.0.0-alpha.beta",
		"v1.0.0-beta", "v1.0.0-beta.2", "v1.0.0-beta.11", "v1.0.0-rc.1", "v1.0.0", "v1.0.1", "v2.0.0",
		"v99999999999999999999.0.0", "v100000000000000000000.0.0",
	}
	for i, from := range ordered {
		for j, to := range ordered {
			if err := permit(from, to); (err == nil) != (j >= i) {
				t.Errorf("%s to %s: %v", from, to, err)
			}
		}
	}
	for _, from := range []string{"", "(devel)", "v1.0.0+a"} {
		if err := permit(from, "v1.0.0+b"); err != nil {
			t.Errorf("%q: %v", from, err)
		}
	}
	for _, to := range []string{"", "1.0.0", "v1.0", "v01.0.0", "v1.0.0-", "v1.0.0-a..b", "v1.0.0\n", "latest"} {
		if err := permit("v0.0.0-dev", to); err == nil {
			t.Errorf("%q is no version", to)
		}
	}
}
