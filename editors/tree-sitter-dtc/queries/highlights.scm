(comment) @comment
(string) @string
[(integer) (real)] @number
(boolean) @constant.builtin
(dots) @punctuation.special
["use" "layer" "model" "fn" "intrinsic" "train" "param" "stack" "of" "shard" "metric"] @keyword
["if" "else" "return"] @keyword.control
["and" "or" "not"] @keyword.operator
["+" "-" "*" "/" "//" "%" "**" "<" "<=" ">" ">=" "==" "!=" "=" "+="] @operator
(use name: (identifier) @module)
(layer name: (identifier) @type)
(model name: (identifier) @type)
(train name: (identifier) @type)
(function name: (identifier) @function)
(method name: (identifier) @function.method)
(metric name: (identifier) @property)
(param name: (identifier) @property)
(named name: (identifier) @variable.parameter)
(call function: (identifier) @function.call)
(call function: (field name: (identifier) @function.call))
