package plan_test

import (
	"encoding/json"
	"reflect"
	"testing"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Any ElementalHost yields a small plan, and the same one each time.
func FuzzPlan(f *testing.F) {
	f.Add(`{"metadata":{"name":"h","namespace":"n"},"spec":{"approval":"Approved","claim":{"id":"c1","clusterName":"c","machineName":"m","phase":"Bound"}},"status":{"agent":{"capabilities":["Bootstrap","Reset","Update"]},"inventory":{"architecture":"amd64"}}}`,
		``)
	f.Add(`{"spec":{"approval":"Approved","fence":{"reason":"x"},"claim":{"id":"c1","phase":"Releasing","erase":"Zero"},"reboot":{"id":"r"},"osUpgrade":{"id":"u","image":"oci:x"}},"status":{"agent":{"capabilities":["Reset","Erase","Reboot","Upgrade"]}}}`, `null`)
	f.Add(`{"spec":{"approval":"Approved","lock":{"reason":"Cloned"},"maintenance":{"reason":"x"},"claim":{}},"status":{"operations":[{"type":"Bootstrap","id":"c1","state":"Succeeded"}]}}`, `{}`)
	const node = `{"metadata":{"name":"h"},"spec":{"approval":"Approved","claim":{"id":"c1","phase":"Bound","role":"InitialControlPlane"}},"status":{"agent":{"capabilities":["Bootstrap","Files"]},"operations":[{"type":"Bootstrap","id":"c1","state":"Succeeded"}],"inventory":{"nics":[{"name":"eth0","defaultRoute":true,"addresses":["10.0.0.1/8"]}]},"conditions":[{"type":"Bootstrapped","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	f.Add(node, `{"spec":{"controlPlaneEndpoint":{"host":"fd00::1"},"controlPlaneEndpointPolicy":{"hostRef":{"name":"h"},"formerEndpoints":[{"host":"10.0.0.1","port":6443,"hostName":"h","rejectedSince":"2026-01-01T00:00:00Z"}]}}}`)
	f.Add(node, `{"spec":{"controlPlaneEndpoint":{"host":"10.0.0.9","port":6443},"controlPlaneEndpointPolicy":{"type":"VIP","vip":{"address":"10.0.0.9","distribution":"Kubeadm","extraEnv":[{"name":"a","value":"b"}]}}}}`)
	f.Add(node, `{"spec":{"controlPlaneEndpoint":{"host":"10.0.0.9","port":6443},"controlPlaneEndpointPolicy":{"type":"VIP","vip":{"address":"10.0.0.9","mode":"BGP","distribution":"K3s","bgp":{"localASN":65000,"peers":[{"address":"10.0.0.2","asn":1}]}}}}}`)
	f.Add(`{"metadata":{"name":"h"},"spec":{"approval":"Approved","bundle":{"version":"v1","sha256":"b","sources":["manager"]},"nodeUpgrade":{"id":"u","role":"Worker","bundle":{"sha256":"b"},"drainTimeoutSeconds":9},"claim":{"id":"c1","phase":"Bound"}},"status":{"agent":{"capabilities":["Bootstrap","Bundle","NodeUpgrade"]},"operations":[{"type":"Bootstrap","id":"c1","state":"Succeeded"}]}}`, `{}`)
	f.Fuzz(func(t *testing.T, object, of string) {
		var host infrav1.ElementalHost
		if json.Unmarshal([]byte(object), &host) != nil {
			return
		}
		var cluster plan.Cluster
		if json.Unmarshal([]byte(of), &cluster.Infra) != nil {
			cluster.Infra = nil
		}
		site := plan.Site{Servers: []string{"https://a"}, TrustBundle: "x", Agent: &infrav1.AgentRelease{
			Version: "v1.0.0", Binaries: []infrav1.AgentBinary{{Architecture: "amd64", SHA256: "0"}},
		}}
		before, clusterBefore := host.DeepCopy(), cluster.Infra.DeepCopy()
		first, second := plan.For(&host, site, cluster), plan.For(host.DeepCopy(), site, plan.Cluster{Infra: cluster.Infra.DeepCopy()})
		if !reflect.DeepEqual(first, second) || len(first.Revision) != 16 {
			t.Errorf("two plans of one host: %+v and %+v", first, second)
		}
		if !reflect.DeepEqual(before, &host) {
			t.Error("planning changed the host")
		}
		if !reflect.DeepEqual(clusterBefore, cluster.Infra) {
			t.Error("planning changed the cluster")
		}
		raw, err := json.Marshal(first)
		// JSON escapes some characters with up to six bytes.
		if err != nil || len(raw) > 6*(len(object)+4*len(of))+8192 {
			t.Errorf("a plan of %d bytes from objects of %d and %d: %v", len(raw), len(object), len(of), err)
		}
		for _, file := range first.Desired.Files {
			if file.Mode != 0o600 || file.Path == "" || len(file.Content) > protocol.MaxFileBytes && len(of) < protocol.MaxFileBytes/16 {
				t.Errorf("a file %s of mode %o and %d bytes", file.Path, file.Mode, len(file.Content))
			}
		}
		if first.Operation != nil && host.Spec.Approval != infrav1.ApprovalApproved {
			t.Error("a host that is not approved has an operation")
		}
	})
}
