package v1beta2_test

import (
	"reflect"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// fields returns the paths of all fields of a type, as in JSON, each with the type's
// own name: whatever a field is called, its type may still refer to something.
func fields(t reflect.Type, path string) []string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return fields(t.Elem(), path)
	case reflect.Struct:
	default:
		return nil
	}
	if t == reflect.TypeFor[metav1.Time]() {
		return nil
	}
	var out []string
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		out = append(out, path+"."+name, path+"."+name+" "+field.Type.String())
		out = append(out, fields(field.Type, path+"."+name)...)
	}
	return out
}

// Who may edit hosts, but not Secrets, could otherwise have a host fetch any: the
// way from a host to its bootstrap data is the manager's to find.
func TestThreat33_HostsNameNoSecret(t *testing.T) {
	g := NewWithT(t)
	all := fields(reflect.TypeFor[infrav1.ElementalHostSpec](), "spec")
	g.Expect(all).To(ContainElements("spec.claim.machineName", "spec.identity.match.serialNumber"))
	for _, path := range all {
		if strings.HasPrefix(path, "spec.grantedTo.namespace") || strings.HasPrefix(path, "spec.grantedFrom.namespace") {
			continue // where the other object of a granted host is, which needs a verb of its own
		}
		g.Expect(strings.ToLower(path)).NotTo(Or(ContainSubstring("secret"), ContainSubstring("namespace"), ContainSubstring("data"),
			ContainSubstring("objectreference")), path)
	}
}
