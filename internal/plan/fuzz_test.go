package plan_test

import (
	"encoding/json"
	"reflect"
	"testing"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// Whatever is in a host's object, its plan is small, and the same each time.
func FuzzPlan(f *testing.F) {
	f.Add(`{"metadata":{"name":"h","namespace":"n"},"spec":{"approval":"Approved","claim":{"id":"c1","clusterName":"c","machineName":"m","phase":"Bound"}},"status":{"agent":{"capabilities":["Bootstrap","Reset","Update"]},"inventory":{"architecture":"amd64"}}}`)
	f.Add(`{"spec":{"approval":"Approved","fence":{"reason":"x"},"claim":{"id":"c1","phase":"Releasing","erase":"Zero"},"reboot":{"id":"r"},"osUpgrade":{"id":"u","image":"oci:x"}},"status":{"agent":{"capabilities":["Reset","Erase","Reboot","Upgrade"]}}}`)
	f.Add(`{"spec":{"approval":"Approved","lock":{"reason":"Cloned"},"maintenance":{"reason":"x"},"claim":{}},"status":{"operations":[{"type":"Bootstrap","id":"c1","state":"Succeeded"}]}}`)
	f.Fuzz(func(t *testing.T, object string) {
		var host infrav1.ElementalHost
		if json.Unmarshal([]byte(object), &host) != nil {
			return
		}
		site := plan.Site{Servers: []string{"https://a"}, TrustBundle: "x", Agent: &infrav1.AgentRelease{
			Version: "v1.0.0", Binaries: []infrav1.AgentBinary{{Architecture: "amd64", SHA256: "0"}},
		}}
		before := host.DeepCopy()
		first, second := plan.For(&host, site), plan.For(host.DeepCopy(), site)
		if !reflect.DeepEqual(first, second) || len(first.Revision) != 16 {
			t.Errorf("two plans of one host: %+v and %+v", first, second)
		}
		if !reflect.DeepEqual(before, &host) {
			t.Error("planning changed the host")
		}
		raw, err := json.Marshal(first)
		// Control characters and such take up to six bytes as JSON.
		if err != nil || len(raw) > 6*len(object)+1024 {
			t.Errorf("a plan of %d bytes from an object of %d: %v", len(raw), len(object), err)
		}
		if first.Operation != nil && host.Spec.Approval != infrav1.ApprovalApproved {
			t.Error("a host that was not let in is to do something")
		}
	})
}
