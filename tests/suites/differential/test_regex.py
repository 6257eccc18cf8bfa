"""Regular expressions, as users write them and as they should not.

Both lists were tried on the reference; what it makes of each pattern, and
whether it refuses it, must be the same here.
"""

from messages import TENANT
from scenario import A
from struct_pack import Err, Ok

KEYS = ["a", "abc", "aabb", "Key-1", "x\ny", "x\ry", "é", "foo.bar", "a+b", "tab\t", "zz", "{}", "]"]
KEYS += ["model/7b/layer.12#3"]

PATTERNS = """
^a  b$  ^abc$  .  ^.$  ^..$  .*  .+  a.*b  ^$  x.y  x[^a]y  [a-c]+  [^a-z]  [A-Z]  [.]  \\.  foo\\.bar
\\d  \\D  \\w+  \\W  \\s  x\\sy  \\S  \\bfoo  \\Bb  \\t  \\n  \\r  \\f\\v  \\0  \\cA  \\u0061
\\x61  \\z  \\e  \\a  \\-  \\/  \\_
[[:alpha:]]+  [[:digit:]]  [[:space:]]  [[:upper:]]  [[:punct:]]  [[:alnum:]_]+  [[.a.]]  [[=a=]]  
[\\d]  [\\w-]  [a\\-z]  [\\b]  [-a]  [a-]
(a)  (a|b)*c  (?:b)b  (a)\\1  (a)(b)\\2  ((a)b)  a|  |  ()  \\d+|^zz$  ^(a+)+$  (foo|bar)\\.(foo|bar)
a{2}  a{1,}  a{1,2}  a{0}b  a+?  a*?b  a??  a{2}?  a**  x{1}{2}  a{1,2}{3}  (a{2}){1}
(?=x)  x(?!z)  x(?=\\n)  ^(?!a)  ^(?!.*b)  ^model/(\\d+)b/layer\\.(\\d+)#\\d$  [^/]+/[^/]+
]  }  a]  [^]  []  []a]  [a-c&&b]  é  [é]  \\Q  \\,  $a  a^  a$|b$  ^^a  b$$
""".split()

REFUSED = """
*  +  ?  a{,2}  a{2  {  a{2,1}  [  [a-  [z-a]  \\  \\p{L}  (?i)key  (?<n>a)  (?<=a)b  (?>a)  (?#c)  (?  (?:  (  a)
[[:foo:]]  \\1  (a)\\2  ^*  $*  \\b*  (?=a)*  (?P<n>a)  \\x6  \\u006  \\c  [\\  [[.ab.]]  a{  a{x}  a{-1}
""".split()


def test_patterns(scenario):
    with scenario() as s:
        s.mount(1)
        for key in KEYS:
            s.put(A, key)
        for pattern in [*PATTERNS, " ", ""]:
            assert isinstance(s("GetReplicaListByRegex", pattern, TENANT), Ok), pattern
        for pattern in REFUSED:
            s("GetReplicaListByRegex", pattern, TENANT, expect=Err(-600))
        assert len(s("GetReplicaListByRegex", "^a", TENANT).value) == 4
        assert len(s("GetReplicaListByRegex", "", TENANT).value) == len(KEYS)


def test_removal_by_pattern(scenario):
    with scenario() as s:
        s.mount(1)
        removed = {"^a": 4, "\\d$": 2, "(?!)": 0, "[[:upper:]]": 1, "": len(KEYS), "x": 2}
        for pattern, count in removed.items():
            for key in KEYS:
                s.put(A, key)
            s("RemoveByRegex", pattern, False, TENANT, expect=Ok(count))
        s("RemoveByRegex", "(", False, TENANT, expect=Err(-600))


def test_bytes_that_are_no_text(scenario):
    with scenario() as s:
        s.mount(1)
        for key in ("\udcff\udcfe", "a\0b", "é\udc80"):
            s.put(A, key)
        for pattern in ("^..$", "\udcff", "a.b", "\\0", "[\udc80-\udcff]", "[^a]", "\\xff", "é"):
            assert isinstance(s("GetReplicaListByRegex", pattern, TENANT), Ok), pattern
        for pattern, found in (("\udcff", {"\udcff\udcfe"}), ("a.b", {"a\0b"}), ("é", {"é\udc80"})):
            assert {key for key, _ in s("GetReplicaListByRegex", pattern, TENANT).value} == found
