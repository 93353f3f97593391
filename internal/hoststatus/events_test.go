package hoststatus_test

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

func tunnelIs(state infrav1.ConnectionState) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) { h.Status.Tunnel = &infrav1.HostTunnel{State: state} }
}

func TestEvents(t *testing.T) {
	at := func(changes ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
		h := host(changes...)
		hoststatus.Update(h, now)
		return h
	}
	as := with(func(*infrav1.HostPreflight) {})
	swaps := with(func(p *infrav1.HostPreflight) { p.Swap = infrav1.FeatureEnabled })
	for name, tc := range map[string]struct {
		before, after *infrav1.ElementalHost
		want          []string
	}{
		"nothing":                          {at(), at(), nil},
		"progress":                         {at(claim(bound)), at(claim(bound), operation(bootstrap, running, id)), nil},
		"disconnected":                     {at(), at(disconnected), []string{"Warning AgentDisconnected"}},
		"connected":                        {at(disconnected), at(), []string{"Normal AgentConnected", "Normal Available"}},
		"bootstrapped":                     {at(claim(bound)), at(claim(bound), operation(bootstrap, succeeded, id)), []string{"Normal BootstrapSucceeded"}},
		"bootstrap failed":                 {at(claim(bound)), at(claim(bound), operation(bootstrap, failed, id)), []string{"Warning BootstrapFailed"}},
		"reset failed":                     {at(claim(releasing)), at(claim(releasing), operation(reset, failed, id)), []string{"Warning ResetFailed"}},
		"freed":                            {at(claim(releasing), operation(reset, succeeded, id)), at(), []string{"Normal Available"}},
		"created":                          {host(), at(func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending }), []string{"Normal AgentConnected", "Normal PendingApproval"}},
		"cloned":                           {at(), at(locked), []string{"Warning IdentityCloned"}},
		"fenced":                           {at(), at(fenced), []string{"Warning Fenced"}},
		"readopted":                        {host(), at(undecided(infrav1.PendingReadopted)), []string{"Normal AgentConnected", "Normal Readopted"}},
		"ambiguous":                        {host(), at(undecided(infrav1.PendingAmbiguous)), []string{"Normal AgentConnected", "Warning AmbiguousHardware"}},
		"maintenance":                      {at(claim(bound)), at(claim(bound), maintenance), []string{"Normal Maintenance"}},
		"end of maintenance":               {at(claim(bound), maintenance), at(claim(bound)), []string{"Normal MaintenanceEnded"}},
		"end of maintenance, disconnected": {at(claim(bound), maintenance, disconnected), at(claim(bound), disconnected), []string{"Warning MaintenanceEnded"}},
		"end of maintenance, free":         {at(maintenance), at(), []string{"Normal MaintenanceEnded", "Normal Available"}},
		"released in maintenance": {at(claim(bound), operation(bootstrap, succeeded, id), maintenance), at(claim(releasing), maintenance),
			[]string{"Normal ResetPrevented"}},
		"fenced in maintenance":        {at(claim(bound), maintenance), at(claim(bound), maintenance, fenced), []string{"Warning Fenced"}},
		"disconnected in maintenance":  {at(claim(bound), maintenance), at(claim(bound), maintenance, disconnected), []string{"Normal AgentDisconnected"}},
		"held":                         {at(claim(bound)), at(claim(infrav1.ClaimHeld)), []string{"Normal ResetHeld"}},
		"clock right":                  {at(), at(skewed(0)), nil},
		"clock wrong":                  {at(skewed(0)), at(skewed(120)), []string{"Warning ClockSkewed"}},
		"clock still wrong":            {at(skewed(60)), at(skewed(120)), nil},
		"clock right again":            {at(skewed(120)), at(skewed(0)), []string{"Normal ClockSynchronized"}},
		"update failed":                {at(updated("v2.0.0", running)), at(updated("v2.0.0", failed)), []string{"Warning AgentUpdateFailed"}},
		"updated":                      {at(updated("v1.0.0", running)), at(updated("v1.0.0", succeeded)), []string{"Normal AgentCurrent"}},
		"tunnel opened":                {at(), at(tunnelIs(infrav1.ConnectionConnected)), []string{"Normal TunnelOpened"}},
		"tunnel lost":                  {at(tunnelIs(infrav1.ConnectionConnected)), at(tunnelIs(infrav1.ConnectionDisconnected)), []string{"Warning TunnelLost"}},
		"tunnel lost in maintenance":   {at(maintenance, tunnelIs(infrav1.ConnectionConnected)), at(maintenance, tunnelIs(infrav1.ConnectionDisconnected)), []string{"Normal TunnelLost"}},
		"tunnel back":                  {at(tunnelIs(infrav1.ConnectionDisconnected)), at(tunnelIs(infrav1.ConnectionConnected)), []string{"Normal TunnelOpened"}},
		"tunnel not wanted any longer": {at(tunnelIs(infrav1.ConnectionConnected)), at(), nil},
		"not prepared any more":        {at(as), at(swaps), []string{"Warning NotPrepared"}},
		"prepared":                     {at(swaps), at(as), []string{"Normal Prepared"}},
		"never prepared":               {at(), at(swaps), nil},
		"a bundle was removed":         {at(as, claim(releasing)), at(installed("", "", ""), claim(releasing)), nil},
		"bundle staged":                {at(bundled(infrav1.BundleStaging)), at(bundled(infrav1.BundleStaged)), []string{"Normal BundleStaged"}},
		"bundle failed":                {at(bundled("")), at(bundled(infrav1.BundleFailed)), []string{"Warning BundleFailed"}},
		"bundle still failed":          {at(bundled(infrav1.BundleFailed)), at(bundled(infrav1.BundleFailed)), nil},
		"bundle being staged":          {at(bundled("")), at(bundled(infrav1.BundleStaging)), nil},
		"rejected":                     {at(), at(func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected }), []string{"Warning Rejected"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range hoststatus.Events(tc.before, tc.after) {
				got = append(got, e.Type+" "+e.Reason)
			}
			NewWithT(t).Expect(got).To(Equal(tc.want))
		})
	}
}
