package v1beta2_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

func TestInMaintenance(t *testing.T) {
	at := func(hour int) metav1.Time { return metav1.Date(2026, 3, 4, hour, 0, 0, 0, time.UTC) }
	// The API server returns times in the zone of its caller.
	elsewhere := metav1.NewTime(at(5).In(time.FixedZone("", 3600)))
	for name, tc := range map[string]struct {
		maintenance *infrav1.HostMaintenance
		ended       metav1.Time
		want        bool
	}{
		"none":                     {nil, metav1.Time{}, false},
		"none, after one":          {nil, at(5), false},
		"without an end":           {&infrav1.HostMaintenance{}, metav1.Time{}, true},
		"without an end, later":    {&infrav1.HostMaintenance{}, at(5), true},
		"with an end":              {&infrav1.HostMaintenance{Until: at(5)}, metav1.Time{}, true},
		"ended":                    {&infrav1.HostMaintenance{Until: at(5)}, at(5), false},
		"ended, in another zone":   {&infrav1.HostMaintenance{Until: at(5)}, elsewhere, false},
		"another one, after it":    {&infrav1.HostMaintenance{Until: at(6)}, at(5), true},
		"an earlier one, after it": {&infrav1.HostMaintenance{Until: at(4)}, at(5), true},
	} {
		t.Run(name, func(t *testing.T) {
			host := &infrav1.ElementalHost{Spec: infrav1.ElementalHostSpec{Maintenance: tc.maintenance, MaintenanceEndedAt: tc.ended}}
			NewWithT(t).Expect(host.InMaintenance()).To(Equal(tc.want))
		})
	}
}
