" Models of dtc.
if exists("b:current_syntax") | finish | endif
syntax keyword dtcDeclaration use layer model fn train intrinsic
syntax keyword dtcStatement param return stack of shard
syntax keyword dtcConditional if else
syntax keyword dtcOperatorWord and or not
syntax keyword dtcBoolean true false
syntax keyword dtcConstant pi inf
syntax keyword dtcBuiltin where real int stop_gradient random min max abs exp log sqrt sin cos tanh erf floor
syntax keyword dtcBuiltin pow sum mean argmax local relu sigmoid rsqrt square ceil pad slice concat cumsum topk
syntax match dtcName /\(\<\(layer\|model\|fn\|train\)\s\+\)\@<=\h\w*/
syntax match dtcNumber /\<\d[0-9_]*\(\.[0-9]*\)\?\([eE][+-]\?\d\+\)\?/
syntax match dtcNumber /\.\d\+\([eE][+-]\?\d\+\)\?/
syntax match dtcDots /\.\.\./
syntax match dtcOperator /+=\|\*\*\|\/\/\|[=!<>]=\|[-+*\/%<>=|]/
syntax region dtcString start=/"/ skip=/\\./ end=/"/ oneline
syntax match dtcComment /#.*$/ contains=dtcTodo,@Spell
syntax keyword dtcTodo contained TODO FIXME XXX
highlight default link dtcDeclaration Keyword
highlight default link dtcStatement Statement
highlight default link dtcConditional Conditional
highlight default link dtcOperatorWord Operator
highlight default link dtcBoolean Boolean
highlight default link dtcConstant Constant
highlight default link dtcBuiltin Function
highlight default link dtcName Type
highlight default link dtcNumber Number
highlight default link dtcDots Special
highlight default link dtcOperator Operator
highlight default link dtcString String
highlight default link dtcComment Comment
highlight default link dtcTodo Todo
let b:current_syntax = "dtc"
