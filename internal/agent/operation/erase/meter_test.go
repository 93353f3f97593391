package erase

import (
	"fmt"
	"testing"
)

func TestMeter(t *testing.T) {
	var shown []string
	m := &meter{show: func(step string) { shown = append(shown, step) }, percents: map[string]int{}}
	for percent := range 101 {
		m.at("sda", percent)
	}
	if len(shown) != 11 || shown[3] != "erase sda 30%" || shown[10] != "erase" {
		t.Errorf("showed %q", shown)
	}
	for i := range 60 {
		m.at(fmt.Sprintf("disk-%d", i), 10)
	}
	if last := shown[len(shown)-1]; len(last) > maxStep {
		t.Errorf("the step has %d bytes, the limit is %d", len(last), maxStep)
	}
}
