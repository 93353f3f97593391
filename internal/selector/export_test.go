package selector

// MaxCached is the maximum number of expressions that a Compiler caches.
const MaxCached = cached

// CacheLen returns the number of expressions that the Compiler caches.
func (c *Compiler) CacheLen() int { return c.compiles.Len() }

// SameExpression reports whether two Selectors share one compiled expression.
func SameExpression(a, b *Selector) bool { return a.expression != nil && a.expression == b.expression }

// Spent returns the total cost of the evaluations by the Selector.
func (s *Selector) Spent() uint64 { return s.spent.Load() }
