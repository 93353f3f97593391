// Package conversion tries what docs/adr/0090-versions.md plans for a field that must change its
// meaning: a second version of ElementalHost, v1beta3, which exists in this package only. Its
// spec.reboots is a list of requests, where v1beta2 has one, spec.reboot. A real kube-apiserver
// serves both from the generated CRD, and a real webhook converts.
package conversion
